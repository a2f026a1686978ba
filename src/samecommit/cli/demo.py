"""``samecommit demo``: the whole system at work on a file of leads."""

from __future__ import annotations

from pathlib import Path

import click

from samecommit.cli.options import Manner, checked_dsn, common


@click.command()
@click.option("--leads", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A CSV file of your own.")
@click.option("--naive", is_flag=True, help="Also run the common way, queue beside database, and compare.")
@click.option("--keep", is_flag=True, help="Leave everything running afterwards, until Ctrl-C.")
@click.option("--dsn", metavar="DSN", callback=checked_dsn, help="A database to run on, instead of one of its own.")
@common
def demo(manner: Manner, leads: Path | None, dsn: str | None, *, naive: bool, keep: bool) -> int:
    """Run leads through three jobs, kill processes half-way, and audit that none was lost or doubled.

    Without --dsn it brings a PostgreSQL of its own, which goes with it. The exit status is 0 only if the audit is clean.
    """
    from dataclasses import replace

    from rich.console import Console

    from samecommit.demo.run import DemoOptions, run

    chosen = DemoOptions(naive=naive, keep=keep, dsn=dsn)
    chosen = chosen if leads is None else replace(chosen, leads=leads)
    status = run(chosen, Console(stderr=True) if manner.json else None)
    if manner.json:
        manner.say({"audit": "clean" if status == 0 else "not clean"})
    return status
