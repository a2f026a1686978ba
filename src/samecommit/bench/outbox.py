"""The outbox's relay: how fast it reads and delivers, whether a large backlog slows it down, and how soon it hears."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from psycopg import sql

from samecommit.bench.brokers import broker
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Plot, Report, histogram, percentile

_CHUNK = 20_000
_SHARE = 0.1


def fill_log(place: Place, events: int, *, has_windows: bool, report: Report | None = None) -> None:
    """Put events in the log in bulk, each chunk a transaction and, if asked for, a window of its own."""
    with place.connect() as conn:
        conn.execute("SET synchronous_commit = off")
        for begun in range(0, events, _CHUNK):
            conn.execute(
                "INSERT INTO event (lane, version, id, source, type, key, content_type, data) "
                "SELECT hashtextextended((n %% 1000)::text, 0) & 1023, 1, gen_random_uuid()::text, 'bench', 'lead.created', "
                "(n %% 1000)::text, 'application/json', convert_to(%s, 'UTF8') FROM generate_series(1, %s) AS n",
                ('{"id": 12345, "note": "' + "x" * 60 + '"}', min(_CHUNK, events - begun)),
            )
            if has_windows:
                conn.execute("SELECT make_window()")
            if report is not None and begun % (_CHUNK * 25) == 0:
                report.step(begun / events / 2, f"{begun:,} of {events:,} emitted")
        conn.execute("VACUUM ANALYZE event")


def throughput(place: Place, report: Report, *, events: int = 200_000) -> None:
    """Read the log and do nothing with it; then deliver it to nobody, to Redis and to NATS, from one process."""
    place.renew()
    fill_log(place, events, has_windows=True)
    with children() as start:
        done = start("read", place).result()
    assert done["events"] == events, f"read {done['events']} of {events}"
    report.add("outbox", "plain read of the log", events / done["seconds"], "events/s")
    _deliver(place, report, events, "nothing")
    for n, (kind, bar) in enumerate((("redis", 25_000), ("nats", 20_000))):
        report.step(0.4 + 0.3 * n, kind)
        with broker(kind, place.folder) as found:
            if found is None:
                note = f"{kind}-server or its client library is not installed"
                report.add("outbox", f"relay to {kind}: not measured", None, "events/s", note=note)
                continue
            _deliver(place, report, events, kind, url=found.url, bar=bar, note=found.settings)


def _deliver(place: Place, report: Report, events: int, sink: str, *, url: str = "", **more: Any) -> None:
    _forget_positions(place)
    with children() as start:
        done = start("relay", place, sink=sink, url=url, start="start", expect=events).result()
    assert done["delivered"] == events, f"delivered {done['delivered']} of {events}"
    rate = events / ((done["last"] - done["first"]) / 1e9)
    report.add("outbox", f"relay to {sink}", rate, "events/s", **more)
    report.add("outbox", f"relay to {sink}, CPU of its process", done["cpu"] / events * 1e6, "ms/1,000 events")


def backlog(place: Place, report: Report, *, events: int = 10_000_000) -> None:
    """Deliver a backlog to nobody: whether the last tenth is as fast as the first; as many windows, and as one."""
    for has_windows in (True, False):
        place.renew()
        fill_log(place, events, has_windows=has_windows, report=report)
        with children() as start:
            relay = start("relay", place, start="start", expect=events)
            with _watched(place, report, events):
                done = relay.result()
        moments = [(at - done["first"], count) for at, count in done["moments"]]
        name = f"backlog of {events:,} events in {'many windows' if has_windows else 'one window'}"
        first, last = _pace(moments, 0.0, _SHARE, events), _pace(moments, 1 - _SHARE, 1.0, events)
        report.add("outbox", name, events / ((done["last"] - done["first"]) / 1e9), "events/s")
        report.add("outbox", f"{name}, first tenth", first, "events/s")
        report.add("outbox", f"{name}, last tenth to first", last / first, "x", bar=0.8)
        report.plots[name] = Plot(points=_rates(moments), y="events a second")


@contextmanager
def _watched(place: Place, report: Report, events: int) -> Generator[None]:
    """Tell now and then how much is delivered, until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(2.0):
            delivered = place.ask(sql.SQL("SELECT coalesce(sum(delivered), 0)::bigint FROM position"))
            report.step(0.5 + delivered / events / 2, f"{delivered:,} of {events:,} delivered")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _pace(moments: list[tuple[int, int]], since: float, until: float, events: int) -> float:
    """Return the rate between two shares of all events."""
    part = [(at, count) for at, count in [(0, 0), *moments] if since * events <= count <= until * events]
    (begun, before), (ended, after) = part[0], part[-1]
    return (after - before) / max((ended - begun) / 1e9, 1e-9)


def _rates(moments: list[tuple[int, int]]) -> list[tuple[float, float]]:
    seconds: dict[int, int] = {}
    for at, count in moments:
        seconds[at // 1_000_000_000] = count
    found = sorted(seconds.items())
    return [(float(s), float(n - before)) for (_, before), (s, n) in pairwise(found)]


def pick_up(place: Place, report: Report, *, samples: int = 1000) -> None:
    """From the commit of an emit to the sink, while events come all the time and while the relay sleeps between them."""
    for name, gap, bars, count in (
        ("events all the time", 0.015, {0.99: 50.0}, samples),
        ("a sleeping relay", 0.6, {0.5: 10.0, 0.99: 50.0}, max(samples // 10, 10)),
    ):
        place.renew()
        arrivals = place.folder / "arrivals.json"
        with children() as start:
            relay = start("relay", place, arrivals=str(arrivals))
            relay.wait_ready()
            commits = start("emit", place, seed=1, seconds=gap * count, gap=gap).result()["commits"]
            time.sleep(1.0)
            relay.result(stop=True)
        arrived = dict(json.loads(arrivals.read_text()))
        delays = [max(0.0, (arrived[n] - at) / 1e6) if n in arrived else float("inf") for n, at in commits]
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            value = percentile(delays, share)
            report.add("outbox", f"emit to sink, {name}, {label}", value, "ms", bar=bars.get(share), better="lower")
        report.plots[f"emit to sink, {name}"] = histogram(delays)


def fan_out(place: Place, report: Report, *, seconds: float = 10.0, many: int = 50) -> None:
    """Blocks of the log that are read for one destination, and for many that stand at the same place.

    The emits look at blocks of the log too, many more than one reader does: what they look at alone is taken off.
    """
    emits = _blocks_for_an_event(place, seconds, 0)
    one, all_of_them = (_blocks_for_an_event(place, seconds, count) - emits for count in (1, many))
    assert one > 0, f"one reader looks at {one:.2f} blocks for an event more than none: other work is in the counts"
    report.add("outbox", "blocks of the log looked at by an emit", emits, "blocks")
    report.add("outbox", "blocks of the log read for an event, 1 destination", one, "blocks")
    report.add("outbox", f"blocks of the log read for an event, {many} destinations", all_of_them, "blocks")
    name = f"blocks of the log read, {many} destinations to 1"
    report.add("outbox", name, all_of_them / one, "x", bar=5, better="lower")


def _blocks_for_an_event(place: Place, seconds: float, destinations: int) -> float:
    """Emit for some seconds beside a relay with so many destinations (0: no relay); blocks for each event, emits included."""
    place.renew()
    with children() as start:
        relay = start("relay", place, destinations=destinations) if destinations else None
        if relay is not None:
            relay.wait_ready()
        before = _log_blocks(place)
        emitters = [start("emit", place, seed=n + 1, seconds=seconds, gap=0.005) for n in range(4)]
        events = sum(len(emitter.result()["commits"]) for emitter in emitters)
        time.sleep(1.0)
        if relay is not None:
            delivered = relay.result(stop=True)["delivered"]
            assert delivered == events * destinations, f"{delivered} deliveries of {events} events to {destinations}"
    return (_log_blocks(place) - before) / events


def _log_blocks(place: Place) -> int:
    """Return how many blocks of events and windows were looked at, by whomever."""
    time.sleep(1.5)  # backends tell their counts a second late
    return int(
        place.ask(
            sql.SQL(
                "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint "
                "FROM pg_statio_user_tables WHERE schemaname = %s AND relname LIKE 'event%%'"
            ),
            place.schema,
        )
    )


def _forget_positions(place: Place) -> None:
    with place.connect() as conn:
        conn.execute(sql.SQL("TRUNCATE position, destination"))
