"""``samecommit worker``: claims and runs an application's jobs, in this process or in several under it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.log import Format, Log
from samecommit.cli.options import Manner, check_dsn, common, dsn_option
from samecommit.cli.worker_options import worker_config, worker_options
from samecommit.signals import Signals

if TYPE_CHECKING:
    from samecommit.worker.worker import Worker


@click.command(context_settings={"auto_envvar_prefix": "SAMECOMMIT_WORKER"})
@click.argument("target", metavar="[MODULE:APP]", required=False)
@worker_options
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--log",
    "log_form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the lines on standard error.",
)
@click.option("--relays/--no-relays", default=True, show_default=True, help="Carry events to their destinations, too.")
@click.option("--child", type=int, hidden=True, help="The number of this process under its supervisor.")
@dsn_option
@common
def worker(
    manner: Manner,
    target: str | None,
    processes: int,
    log_form: Format,
    child: int | None,
    dsn: str | None,
    *,
    relays: bool,
    **given: Any,
) -> int:
    """Claim and run jobs until told to stop.

    MODULE:APP names the application: an App, or a function that makes one; MODULE alone will do where it holds a single
    App. SAMECOMMIT_APP stands in for it. The current directory is on the import path.

    SIGTERM or Ctrl-C stops it gracefully: running jobs have the grace period, the rest go back to the line. The second
    one stops at once. Settings not given here are those of the application (App(worker=WorkerConfig(...))); each can
    also be set as SAMECOMMIT_WORKER_<SETTING>.
    """
    log = Log("json" if manner.json else log_form, process=f"worker {child}" if child else "")
    if processes > 1 and child is None:
        return _supervise(manner, processes, given, log)
    from samecommit.cli.locate import locate
    from samecommit.cli.serve import serve
    from samecommit.worker.supervisor import follow_parent

    if child is not None:
        follow_parent()
    app = locate(target)
    app.dsn = check_dsn(dsn if dsn is not None else app.dsn, "the application's DSN")
    made = app.worker(worker_config(app.worker_config, given), relay=relays)
    return serve(made, log, describe(made), grace_seconds=made.config.grace_seconds, is_child=child is not None)


def describe(made: Worker) -> str:
    """Say what a worker is, for its first line."""
    kinds = len({task.name for task in made.tasks.values()})
    return f"worker: {kinds} tasks, {made.config.concurrency} at once"


def _supervise(manner: Manner, processes: int, given: dict[str, Any], log: Log) -> int:
    """Run this command again, so many times. The application is imported by the children only."""
    from samecommit.worker.supervisor import Supervisor

    signals = Signals()
    signals.subscribe(log.hear)

    def command(number: int) -> list[str]:
        return [sys.executable, "-m", "samecommit", *manner.arguments, "--child", str(number)]

    return Supervisor(command, processes, signals, grace_seconds=given["grace_seconds"]).run()
