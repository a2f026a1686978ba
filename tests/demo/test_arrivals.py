from samecommit.demo.arrivals import arrivals
from samecommit.demo.intake import Lead

LEADS = [Lead(row=number, email=f"a{number}@b.example") for number in range(5)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_leads_arrive_at_the_pace_that_is_asked_for() -> None:
    clock = Clock()
    seen = [(lead.row, clock.now) for lead in arrivals(LEADS, 2, clock=clock, sleep=clock.sleep)]
    assert seen == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]


def test_after_a_pause_the_late_ones_come_at_once() -> None:
    clock = Clock()
    times = list[float]()
    for lead in arrivals(LEADS, 2, clock=clock, sleep=clock.sleep):
        times.append(clock.now)
        clock.now += 1.2 if lead.row == 0 else 0
    assert times == [0.0, 1.2, 1.2, 1.5, 2.0]


def test_without_a_pace_nobody_waits() -> None:
    clock = Clock()
    assert list(arrivals(LEADS, 0, clock=clock, sleep=clock.sleep)) == LEADS
    assert clock.now == 0
