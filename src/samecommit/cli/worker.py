"""``samecommit worker``: claims and runs an application's jobs."""

from __future__ import annotations

from typing import Any

import click

from samecommit.cli.log import Format, Log
from samecommit.cli.options import Manner, common, dsn_option
from samecommit.cli.worker_options import worker_config, worker_options


@click.command(context_settings={"auto_envvar_prefix": "SAMECOMMIT_WORKER"})
@click.argument("target", metavar="[MODULE:APP]", required=False)
@worker_options
@click.option(
    "--log",
    "log_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the lines on standard error.",
)
@dsn_option
@common
def worker(manner: Manner, target: str | None, log_format: Format, dsn: str | None, **given: Any) -> int:
    """Claim and run jobs until told to stop.

    MODULE:APP names the application: an App, or a function that makes one; MODULE alone will do where it holds a single
    App. SAMECOMMIT_APP stands in for it. The current directory is on the import path.

    SIGTERM or Ctrl-C stops it gracefully: running jobs have the grace period, the rest go back to the line. The second
    one stops at once. Settings not given here are those of the application (App(worker=WorkerConfig(...))); each can
    also be set as SAMECOMMIT_WORKER_<SETTING>.
    """
    from samecommit.cli.locate import locate
    from samecommit.cli.options import check_dsn
    from samecommit.cli.serve import serve

    app = locate(target)
    made = app.worker(worker_config(app.worker_config, given))
    made.dsn = check_dsn(dsn if dsn is not None else made.dsn, "the application's DSN")
    return serve(made, Log("json" if manner.json else log_format))
