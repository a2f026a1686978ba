"""What a storm's figures say: how long it took until the rate was back, and what does not count."""

from __future__ import annotations

from tests.faults.outcome import back_at_rate
from tests.faults.storm import campaign
from tests.support.history import Line, Run

PLAN = campaign(0, calm=20.0)


def story(*, ends_to: float, pause: tuple[float, float] = (0.0, 0.0), fates_to: float = 0.0, fault: float) -> Run:
    """Ten jobs a second from 0 on, as long as producers enqueue, but for a pause; fates go on enqueueing; a fault ends."""
    moments = [n / 10 for n in range(int(ends_to * 10))]
    ends: list[Line] = [
        {"what": "history", "op": "insert", "at": at} for at in moments if not pause[0] <= at < pause[1]
    ]
    clients: list[Line] = [
        {"op": "enqueue", "type": "ok", "at": at, "file": f"client-p{n}", "keys": []} for at in moments for n in (0, 1)
    ]
    clients += [
        {"op": "enqueue", "type": "ok", "at": float(at), "file": "client-stumble_3", "keys": []}
        for at in range(int(ends_to), int(fates_to))
    ]
    faults: list[Line] = [{"op": "fault", "kind": "kill", "at": fault - 1.0, "until": fault}]
    return Run(clients=clients, audit=ends, faults=faults)


def test_the_rate_is_back_at_the_end_of_the_first_window_that_has_it() -> None:
    rate, returns = back_at_rate(story(ends_to=200.0, pause=(30.0, 40.0), fault=32.0), PLAN)
    assert 9.9 < rate < 10.1
    assert returns == [(12.0, "kill")]  # from 39 to 44, four fifths of a window


def test_a_rate_that_does_not_come_back_is_told_while_there_is_enough_to_do() -> None:
    ((seconds, kind),) = back_at_rate(story(ends_to=200.0, pause=(30.0, 200.0), fault=32.0), PLAN)[1]
    assert (round(seconds), kind) == (168, "kill")


def test_what_fates_enqueue_after_the_producers_is_no_load_to_come_back_to() -> None:
    assert back_at_rate(story(ends_to=100.0, fates_to=190.0, fault=98.0), PLAN)[1] == []
