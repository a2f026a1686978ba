"""``samecommit bench``."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from samecommit.cli.failure import Exit


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASUREMENT]...")
@click.option(
    "--dsn", help="Measure on this database, in a scratch schema that is dropped; an embedded server otherwise."
)
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this file."
)
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw latencies and courses into this folder."
)
@click.option("--scale", type=float, default=1.0, show_default=True, help="Share of the published size.")
@click.option("--yes", is_flag=True, help="Measure although other sessions work on the server.")
def bench(
    names: tuple[str, ...], dsn: str | None, json_path: Path | None, plots: Path | None, scale: float, *, yes: bool
) -> int:
    """Measure rates, latencies and costs, beside the floor in the same run.

    Without a name: drain, latency, late, enqueue, pinned, handlers, payloads, strangers, lanes. `all` runs everything, which
    takes hours and tens of gigabytes. The others are:

    \b
    polling         pick-up without a bell          late-writer     beside a transaction that stays open
    crowd           8 producers, a busy worker      workers         1, 2, 4 and 16 processes
    pinned-drain    3 million jobs under one pin    pinned-costs    CPU after 6 million under one pin
    idle            1 and 64 workers at rest        storm           a dependency that is down
    bystander       a neighbour's load              promoter        5,000 due in each second
    depth           claims at 30 million rows       emit            commits/s with an emit
    outbox          reading and delivering events   outbox-backlog  10 million events, twice

    It may be interrupted at any time: what was measured is shown and written, and the scratch schema goes. The exit status
    is 130 then, and 1 when a measurement failed.
    """  # noqa: D301 - click's mark of a paragraph that keeps its lines
    from samecommit.bench.run import run
    from samecommit.worker.supervisor import stop_signals

    for number in stop_signals():
        signal.signal(number, signal.default_int_handler)
    report = run(names, dsn=dsn, json_path=json_path, plots=plots, factor=scale, may_disturb=yes)
    if report.is_interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if report.is_complete else Exit.FAILED
