"""Signals reach every listener, in order, and a broken listener harms nobody."""

import pytest

from samecommit.signals import JobsClaimed, Signal, Signals


def test_every_listener_hears_every_signal_in_order() -> None:
    signals, first, second = Signals(), list[Signal](), list[Signal]()
    signals.subscribe(first.append)
    signals.subscribe(second.append)
    told = [JobsClaimed(count=n) for n in range(3)]
    for signal in told:
        signals.emit(signal)
    assert first == second == told


def test_what_subscribe_returns_ends_it_and_may_be_called_twice() -> None:
    signals, heard = Signals(), list[Signal]()
    stop = signals.subscribe(heard.append)
    stop()
    stop()
    signals.emit(JobsClaimed(count=1))
    assert heard == []


def test_a_listener_that_raises_is_dropped_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    signals, heard = Signals(), list[Signal]()

    def broken(signal: Signal) -> None:
        raise ValueError("no")

    signals.subscribe(broken)
    signals.subscribe(heard.append)
    for _ in range(2):
        signals.emit(JobsClaimed(count=1))
    assert len(heard) == 2
    assert signals.listeners == [heard.append]
    shown = capsys.readouterr().err
    assert shown.count("was dropped") == 1 and "ValueError: no" in shown


def test_a_listener_may_subscribe_and_leave_while_it_is_told() -> None:
    signals, heard = Signals(), list[Signal]()

    def once(signal: Signal) -> None:
        stop()
        signals.subscribe(heard.append)

    stop = signals.subscribe(once)
    signals.emit(JobsClaimed(count=1))
    signals.emit(JobsClaimed(count=2))
    assert heard == [JobsClaimed(count=2)]
