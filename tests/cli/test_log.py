import io
import json
from typing import Any

import pytest

from samecommit.cli.log import Log
from samecommit.cli.news import news
from samecommit.outbox.told import (
    DestinationRecovered,
    DestinationStopped,
    EventParked,
    RelayStarted,
    RelayStopped,
    RepeatPossible,
    ReplayEnded,
)
from samecommit.signals import (
    JobFailed,
    JobsClaimed,
    JobsEnded,
    LeasesReaped,
    LeaseWasLost,
    PolicyBroken,
    ServiceFailed,
    ServiceRecovered,
    Signal,
    WorkerStarted,
    WorkerStopped,
)
from samecommit.worker.supervisor import ChildEnded, ChildKilled, ChildStarted, StopPassedOn

FAILED = JobFailed(job_id=7, kind="greet", attempts=2, will_retry=False, error="ValueError: no\n\nTraceback…")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def written(form: Any, *signals: Signal, process: str = "") -> list[str]:
    stream = io.StringIO()
    log = Log(form, process, stream, Clock())
    for signal in signals:
        log.hear(signal)
    return stream.getvalue().splitlines()


def test_a_failure_is_one_line_of_text() -> None:
    (line,) = written("text", FAILED, process="worker 2")
    at, level, rest = line.split(maxsplit=2)
    assert at.endswith("Z") and level == "error"
    assert rest == "[worker 2] job 7 (greet) failed in attempt 2: ValueError: no; it has failed for good"


def test_a_failure_is_one_object_for_programs() -> None:
    (line,) = written("json", FAILED, process="worker 2")
    told = json.loads(line)
    assert told.keys() == {"at", "level", "event", "message", "process", *FAILED.__struct_fields__}
    assert (told["event"], told["job_id"], told["will_retry"]) == ("JobFailed", 7, False)


@pytest.mark.parametrize(
    ("signal", "level", "part"),
    [
        (JobFailed(job_id=1, kind="k", attempts=1, will_retry=True, error=""), "warning", "will be tried again"),
        (JobsEnded(done=1, settled=0, refused=2), "warning", "2 ends were refused"),
        (LeasesReaped(leases=1, jobs=2, held=1), "warning", "2 jobs given back"),
        (PolicyBroken(kind="k", complaint="nonsense"), "warning", "nonsense"),
        (WorkerStarted(lease_id=1, queues=None, kinds=("k",)), "info", "every queue"),
        (WorkerStarted(lease_id=1, queues=("a", "b"), kinds=("k",)), "info", "queues a, b"),
        (WorkerStopped(lease_id=1, given_back=3), "info", "3 jobs given back"),
        (LeaseWasLost(lease_id=1, running=4, reason="silence"), "error", "silence"),
        (
            ServiceFailed(service="claimer", error="a\nb", retry_seconds=1),
            "warning",
            "claimer failed, next try in 1.0 s: a b",
        ),
        (ServiceRecovered(service="claimer", failures=3), "info", "works again after 3"),
        (ChildStarted(number=1, pid=9), "info", "pid 9"),
        (ChildEnded(number=1, pid=9, status=-9, lived_seconds=1, restart_seconds=2), "warning", "SIGKILL"),
        (ChildEnded(number=1, pid=9, status=-250, lived_seconds=1, restart_seconds=2), "warning", "signal 250"),
        (ChildEnded(number=1, pid=9, status=1, lived_seconds=1, restart_seconds=None), "error", "status 1"),
        (ChildEnded(number=1, pid=9, status=0, lived_seconds=1, restart_seconds=None), "info", "status 0"),
        (ChildKilled(number=1, pid=9), "error", "was killed"),
        (RelayStarted(destination="d", shard=0, is_clean=False), "info", "relays to d/0, after one that was cut off"),
        (RelayStopped(destination="d", shard=0, reason="asked"), "info", "relays to d/0 no more: asked"),
        (
            DestinationStopped(destination="d", shard=0, state="down", reason="no route", retry_seconds=2),
            "warning",
            "d is down, next try in 2.0 s: no route",
        ),
        (DestinationRecovered(destination="d", shard=0), "info", "d takes events again"),
        (
            EventParked(destination="d", number=7, key=None, state="dead", reason="odd"),
            "error",
            "event 7 waits for a person",
        ),
        (ReplayEnded(destination="d", shard=0, replay=3, is_cancelled=False), "info", "replay 3 to d/0 is through"),
        (RepeatPossible(destination="d", count=3, reason="cut off"), "warning", "3 events are sent again to d"),
        (StopPassedOn(received="SIGTERM", times=1, children=2), "info", "stopping 2 workers; again to stop now"),
        (StopPassedOn(received="SIGTERM", times=2, children=2), "info", "again to kill"),
        (StopPassedOn(received="SIGTERM", times=9, children=2), "info", "killing"),
    ],
)
def test_what_is_news_has_a_level_and_a_line(signal: Signal, level: str, part: str) -> None:
    told = news(signal)
    assert told is not None and told[0] == level and part in told[1] and "\n" not in told[1]


def test_what_every_job_does_is_no_news() -> None:
    assert written("text", JobsClaimed(count=5), JobsEnded(done=5, settled=0, refused=0)) == []


def test_a_burst_is_cut_and_counted() -> None:
    stream, clock = io.StringIO(), Clock()
    log = Log("json", "", stream, clock)
    for _ in range(1000):
        log.hear(FAILED)
    log.hear(WorkerStopped(lease_id=1, given_back=0))
    assert len(stream.getvalue().splitlines()) == 21
    clock.now += 1
    log.hear(FAILED)
    cut, again = [json.loads(line) for line in stream.getvalue().splitlines()[21:]]
    assert (cut["event"], cut["of"], cut["count"], again["event"]) == ("LinesCut", "JobFailed", 980, "JobFailed")


def test_long_errors_are_cut_and_passwords_masked() -> None:
    long = ServiceFailed(service="claimer", error="postgresql://me:hunter2@db/x " + "é" * 100_000, retry_seconds=1)
    (line,) = written("json", long)
    assert len(line) < 2_000 and "hunter2" not in line
