"""Each checker passes a good history and catches the bad one that it is for."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.history import Line, Run
from tests.support.history_checks import (
    REAPER,
    attempts,
    ends_once,
    fencing,
    identical,
    innocent_holds,
    judge,
    leases_exclude,
    refused,
    split,
    total_queue,
)
from tests.support.history_health import (
    canaries,
    first_claims_after,
    judge_health,
    ledger,
    liveness,
    resources,
    restarts_elsewhere,
    stray_writes,
    timing,
    unknown_claims,
)
from tests.support.history_life import Operation, can_have_happened

FINISH, CLAIM, BEAT = "samecommit finish", "samecommit claim", "samecommit heartbeat"


class Story:
    """Writes a run down as it would have been written, one moment after the other."""

    def __init__(self) -> None:
        self.now, self.n, self.xid = 100.0, 0, 0
        self.attempts: dict[int, int] = {}
        self.claimed: dict[int, int | None] = {}
        self.clients: list[Line] = []
        self.handlers: list[Line] = []
        self.faults: list[Line] = []
        self.audit: list[Line] = []
        self.tables: list[Line] = []

    def wait(self, seconds: float) -> "Story":
        self.now += seconds
        return self

    def change(self, what: str, op: str, app: str, **values: Any) -> Line:
        self.n += 1
        empty = dict.fromkeys(
            ("job_id", "key", "old_claim", "new_claim", "state", "in_line", "attempts", "claims", "most", "run_at",
             "lease_id", "expires_at")
        )  # fmt: skip
        line = {**empty, "n": self.n, "at": self.now, "xid": self.xid, "app": app, "what": what, "op": op, **values}
        self.audit.append(line)
        return line

    def job(self, op: str, app: str, job: int, **values: Any) -> None:
        self.xid += 1
        self.change(
            "job", op, app, job_id=job, key=f"p-{job}", attempts=self.attempts[job], most=3, run_at=100.0,
            **{"state": "ready", "in_line": True, **values},
        )  # fmt: skip

    def enqueue(self, job: int, answer: str = "ok") -> "Story":
        self.attempts[job], self.claimed[job] = 0, None
        self.clients.append({"op": "enqueue", "at": self.now, "type": "invoke", "keys": [f"p-{job}"]})
        self.clients.append({"op": "enqueue", "at": self.now, "type": answer, "keys": [f"p-{job}"], "ids": [job]})
        if answer != "fail":
            self.job("insert", "producer", job)
        return self

    def lease(self, lease: int, seconds: float = 3.0) -> "Story":
        self.change("lease", "insert", BEAT, lease_id=lease, expires_at=self.now + seconds)
        self.handlers.append({"op": "lease", "at": self.now, "lease": lease, "file": f"worker-{lease}"})
        return self

    def claim(self, job: int, claim: int, lease: int) -> "Story":
        self.wait(0.1)
        self.job("update", CLAIM, job, old_claim=self.claimed[job], new_claim=claim)
        self.change("claim", "insert", CLAIM, new_claim=claim, lease_id=lease)
        self.claimed[job] = claim
        return self

    def say(self, op: str, job: int, claim: int, worker: int) -> "Story":
        self.wait(0.1)
        self.handlers.append(
            {"op": op, "at": self.now, "key": f"p-{job}", "job": job, "claim": claim, "file": f"worker-{worker}"}
        )
        return self

    def done(self, job: int, claim: int | None = None) -> "Story":
        self.wait(0.1)
        owner = self.claimed[job] if claim is None else claim
        self.job("delete", FINISH, job, old_claim=owner)
        self.change(
            "history", "insert", FINISH, job_id=job, key=f"p-{job}", new_claim=owner, state="done",
            attempts=self.attempts[job], most=3,
        )  # fmt: skip
        self.tables.append({"place": "history", "id": job, "key": f"p-{job}", "state": "done"})
        return self

    def release(self, job: int, app: str = FINISH, spends: int = 1) -> "Story":
        self.wait(0.1)
        self.attempts[job] += spends
        self.job("update", app, job, old_claim=self.claimed[job])
        self.claimed[job] = None
        return self

    def run(self) -> Run:
        return Run(
            clients=self.clients, handlers=self.handlers, faults=self.faults, audit=self.audit, tables=self.tables
        )  # fmt: skip


def good() -> Story:
    """One job done at once, one lost with its worker and done by another, one retried after an error."""
    story = Story().lease(1).lease(2)
    for job in (1, 2, 3):
        story.enqueue(job)
    story.enqueue(4, "fail")
    story.claim(1, 11, 1).say("start", 1, 11, 1).say("end", 1, 11, 1).done(1)
    story.claim(2, 12, 1).say("start", 2, 12, 1)
    story.faults.append({"op": "fault", "kind": "kill", "file": "worker-1", "at": story.now})
    story.wait(3).change("lease", "delete", REAPER, lease_id=1, expires_at=story.now - 0.3)
    story.release(2, REAPER).claim(2, 22, 2).say("start", 2, 22, 2).say("end", 2, 22, 2).done(2)
    story.claim(3, 23, 2).say("start", 3, 23, 2).release(3)
    story.claim(3, 33, 2).say("start", 3, 33, 2).say("end", 3, 33, 2).done(3)
    return story


def test_a_good_history_passes_every_check() -> None:
    run = good().run()
    assert [fault for verdict in [*judge(run), *judge_health(run, lease=3, reap=1)] for fault in verdict.faults] == []
    assert total_queue(run).counts["started"] == 3
    assert attempts(run).counts == {"lost": 1, "settled": 1}
    assert 3 < restarts_elsewhere(run)[0] < 4
    assert unknown_claims(run) == []


def test_a_job_that_was_acknowledged_and_never_ended_is_lost() -> None:
    story = good().enqueue(9)
    story.audit.pop()
    assert total_queue(story.run()).faults == ["lost: p-9 (tail)"]


def test_a_job_that_is_done_without_its_work_is_lost() -> None:
    verdict = total_queue(good().enqueue(9).claim(9, 99, 2).say("start", 9, 99, 2).done(9).run())
    assert verdict.faults == ["lost: p-9 (tail)"]


def test_a_job_that_waits_is_not_lost() -> None:
    story = good().enqueue(9)
    story.tables.append(
        {"place": "job", "id": 9, "key": "p-9", "state": "held", "hold_reason": "why", "blocked_by": None}
    )
    assert total_queue(story.run()).is_good
    assert innocent_holds(story.run()) == ["p-9: why"]


def test_losses_are_told_by_where_they_were() -> None:
    kept = {f"p-{n}" for n in range(100)}
    assert split({"p-0", "p-50", "p-99"}, kept) == ["p-0 (prefix)", "p-50 (middle)", "p-99 (tail)"]


def test_a_job_that_nobody_asked_for_is_unexpected() -> None:
    assert "unexpected" in total_queue(good().say("start", 77, 1, 1).run()).faults[0]


def test_a_job_of_a_rolled_back_transaction_is_a_phantom() -> None:
    assert "phantom" in total_queue(good().say("start", 4, 1, 1).run()).faults[0]


def test_a_job_that_ends_twice_is_caught() -> None:
    story = good()
    story.tables.append(story.tables[0])
    assert ends_once(story.run()).faults == ["job 1 has 2 rows"]
    story = good()
    story.change("history", "insert", FINISH, job_id=1, key="p-1", new_claim=11, state="done", attempts=0, most=3)
    assert "though its row was not taken" in ends_once(story.run()).faults[0]


def test_an_end_that_its_own_claim_did_not_work_for_is_caught() -> None:
    story = Story().lease(1).lease(2).enqueue(1).claim(1, 11, 1).say("start", 1, 11, 1).wait(3.5).release(1, REAPER)
    story.claim(1, 21, 2).say("start", 1, 21, 2).say("end", 1, 11, 1).done(1)  # the first worker ends the second's run
    assert "had not done its work" in fencing(story.run()).faults[0]


def test_a_claim_that_ends_twice_is_caught() -> None:
    story = good()
    story.job("update", FINISH, 3, old_claim=23)
    assert fencing(story.run()).faults == ["claim 23 of job 3 ended 2 times"]


def test_refusals_are_counted_by_their_last_total() -> None:
    story = good()
    for total in (1, 3):
        story.handlers.append({"op": "refused", "at": story.now, "count": 1, "total": total, "file": "worker-1"})
    assert refused(story.run()) == 3


def test_a_claim_of_a_claimed_job_is_caught() -> None:
    story = good().enqueue(9).claim(9, 91, 2).claim(9, 92, 2)
    assert leases_exclude(story.run()).faults == ["job 9 was claimed by 92 while 91 had it"]


def test_a_job_taken_from_a_living_lease_is_caught() -> None:
    story = Story().lease(1, 30.0).enqueue(1).claim(1, 11, 1).release(1, REAPER)
    assert leases_exclude(story.run()).faults == ["job 1 was taken from lease 1, which was alive"]


def test_a_lease_that_is_ended_early_is_caught() -> None:
    story = Story().lease(1, 30.0)
    story.change("lease", "delete", REAPER, lease_id=1, expires_at=story.now + 10)
    assert leases_exclude(story.run()).faults == ["lease 1 was ended while it was alive"]


def test_two_handlers_at_once_are_lawful_after_a_lost_lease_only() -> None:
    story = Story().lease(1).lease(2, 30.0).enqueue(1).claim(1, 11, 1).say("start", 1, 11, 1).wait(3.5)
    story.release(1, REAPER).claim(1, 21, 2).say("start", 1, 21, 2).say("end", 1, 11, 1)
    verdict = leases_exclude(story.run())
    assert (verdict.faults, verdict.counts["overlaps"]) == ([], 1)
    story = Story().lease(1, 30.0).enqueue(1).claim(1, 11, 1).say("start", 1, 11, 1).say("start", 1, 12, 1)
    assert "at once" in leases_exclude(story.say("end", 1, 11, 1).run()).faults[0]


def late_start(*, woken: float) -> Story:
    """A worker is stopped with a claim that is lost meanwhile, another runs the job, and the first begins it too."""
    story = Story().lease(1).lease(2, 30.0).enqueue(1).claim(1, 11, 1).wait(3.5).release(1, REAPER)
    story.claim(1, 21, 2).say("start", 1, 21, 2).wait(1.0)
    at = story.now - woken
    story.faults.append({"op": "fault", "kind": "stop", "at": at, "stopped": ["worker-1"], "woken": at})
    return story.say("start", 1, 11, 1).say("end", 1, 21, 2)


def test_a_start_under_a_lost_claim_beside_its_owner_is_lawful_just_after_its_process_was_woken_only() -> None:
    verdict = leases_exclude(late_start(woken=0.05).run())
    assert (verdict.faults, verdict.counts["overlaps"]) == ([], 1)
    for story in (late_start(woken=1.2), late_start(woken=-0.2)):
        assert "at once" in leases_exclude(story.run()).faults[0]
    story = late_start(woken=0.05)
    story.faults[0]["stopped"] = ["worker-2"]
    assert "at once" in leases_exclude(story.run()).faults[0]


def test_a_third_handler_beside_the_first_is_caught_though_the_second_had_ended() -> None:
    story = Story().lease(1, 30.0).enqueue(1).claim(1, 11, 1).say("start", 1, 11, 1)
    story.say("start", 1, 12, 1).say("end", 1, 12, 1).say("start", 1, 13, 1).say("end", 1, 13, 1).say("end", 1, 11, 1)
    assert len(leases_exclude(story.run()).faults) == 2


def test_attempts_that_jump_or_pass_the_most_are_caught() -> None:
    story = Story().lease(1).enqueue(1).claim(1, 11, 1).release(1, spends=2)
    assert "at once" in attempts(story.run()).faults[0]
    story = Story().lease(1).enqueue(1)
    for claim in range(4):
        story.claim(1, claim + 1, 1).release(1)
    assert attempts(story.run()).faults == ["job 1 has 4 attempts of 3"]
    story = Story().enqueue(1)
    story.attempts[1] = 1
    story.job("update", "samecommit chores", 1)
    assert "without one that ended" in attempts(story.run()).faults[0]


def test_a_key_with_two_jobs_is_caught() -> None:
    story = Story().enqueue(1)
    story.clients.append({"op": "enqueue", "at": 1.0, "type": "ok", "keys": ["p-1"], "ids": [2]})
    assert "was acknowledged as jobs [1, 2]" in identical(story.run()).faults[0]
    story = Story().enqueue(1)
    story.change("job", "insert", "producer", job_id=2, key="p-1", attempts=0)
    assert "was stored as jobs [1, 2]" in identical(story.run()).faults[0]


def test_idle_workers_beside_due_jobs_are_caught_unless_the_server_was_down() -> None:
    story = Story().lease(1).enqueue(1).wait(12).claim(1, 11, 1)
    assert "nothing was claimed for 12" in liveness(story.run(), lease=3, reap=1).faults[0]
    story.faults.append({"op": "fault", "kind": "down", "at": 101.0, "until": 110.0, "is_down": True})
    assert liveness(story.run(), lease=3, reap=1).is_good


def test_a_dead_worker_that_keeps_its_jobs_is_caught() -> None:
    run = good().run()
    assert "were taken from it after" in liveness(run, lease=1, reap=1).faults[0]


def test_a_job_left_at_the_end_is_caught() -> None:
    story = good()
    story.tables.append({"place": "job", "id": 9, "key": "p-9", "state": "ready", "blocked_by": None})
    assert "still waiting" in liveness(story.run(), lease=3, reap=1).faults[0]


def test_an_early_start_is_caught() -> None:
    story = Story().lease(1).enqueue(1)
    story.audit[-1]["run_at"] = 200.0
    assert "early" in timing(story.claim(1, 11, 1).run()).faults[0]


def test_what_is_left_behind_is_caught() -> None:
    assert resources(Run(resources={"connections": 2, "workers": 0})).faults == ["2 connections left"]


def test_a_ledger_that_does_not_add_up_is_caught() -> None:
    line = {"jobs": 1, "history": 2, "inserted": 4, "brought_back": 1}
    assert ledger(Run(ledger=[line])).is_good
    assert ledger(Run(ledger=[{**line, "history": 1}])).faults


def test_a_secret_in_a_log_is_caught() -> None:
    assert canaries(["all is well"], ["hunter2"]).is_good
    assert canaries(["password=hunter2 host=x"], ["hunter2"]).faults


@pytest.mark.parametrize(("code", "is_planned"), [("40P01", False), ("57P01", True)])
def test_an_unplanned_class_of_error_is_caught(code: str, is_planned: bool) -> None:
    run = Run(log=[f"2026-01-01 00:00:00 UTC [7] samecommit claim {code} ERROR:  something"])
    assert stray_writes(run).is_good is is_planned
    assert stray_writes(run, frozenset({code})).is_good


def test_a_start_under_a_claim_that_a_crash_took_back_is_found() -> None:
    story = good().say("start", 1, 999, 1)
    assert [line["claim"] for line in unknown_claims(story.run())] == [999]


def test_the_first_claim_after_a_fault_is_measured() -> None:
    story = good()
    fault = {"op": "fault", "kind": "crash", "at": 99.0, "until": 100.0}
    run = replace(story.run(), faults=[fault])
    assert first_claims_after(run, "crash") == [pytest.approx(0.1)]


# ---------------------------------------------------------------------------------------------------- the life of a job


def test_a_life_that_fits_is_found_whatever_the_order_of_the_answers() -> None:
    cancel_while_running = [
        Operation("enqueue", "ok", 0, 1),
        Operation("claim", "ok", 2, 5),
        Operation("cancel", "asked", 3, 4),
        Operation("stop", "cancelled", 5, 6),
    ]
    assert can_have_happened(cancel_while_running, "cancelled")
    assert not can_have_happened(cancel_while_running, "done")


def test_an_answer_that_no_order_explains_is_caught() -> None:
    # the finish had ended before the cancel began, yet the cancel was accepted
    life = [
        Operation("enqueue", "ok", 0, 1),
        Operation("claim", "ok", 2, 3),
        Operation("finish", "ok", 4, 5),
        Operation("cancel", "cancelled", 6, 7),
    ]
    assert not can_have_happened(life, "cancelled")
    assert can_have_happened([*life[:3], replace(life[3], answer="too late")], "done")


def test_an_unknown_answer_may_or_may_not_have_happened() -> None:
    life = [Operation("enqueue", None, 0, 1)]
    assert can_have_happened(life, "ready")
    assert can_have_happened(life, "absent")
    assert not can_have_happened(life, "done")
