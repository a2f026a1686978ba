"""``samecommit relay``: carries an application's events to where they go, and runs no job."""

from __future__ import annotations

import click

from samecommit.cli.log import Format, Log
from samecommit.cli.options import Manner, check_dsn, common, dsn_option
from samecommit.cli.worker_options import Names


@click.command(context_settings={"auto_envvar_prefix": "SAMECOMMIT_RELAY"})
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--destination", "names", type=Names(), multiple=True, help="To these only; to all when not given.")
@click.option(
    "--doorbell/--no-doorbell",
    default=None,
    help="Wait for the bell, or only poll, as it does behind a transaction pooler anyway.",
)
@click.option(
    "--log",
    "log_form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the lines on standard error.",
)
@dsn_option
@common
def relay(
    manner: Manner, target: str | None, names: tuple[tuple[str, ...], ...], log_form: Format, dsn: str | None, *,
    doorbell: bool | None,
) -> int:  # fmt: skip
    """Carry events to their destinations until told to stop, and run no job.

    MODULE:APP names the application as for a worker; workers beside it get --no-relays. Any number may run: each position
    is held by one, and another takes over when it ends. Jobs made for job destinations are run by workers.

    SIGTERM or Ctrl-C stops it gracefully: sends in flight have 10 s, and what was delivered is written down. The second one
    stops at once.
    """
    from dataclasses import replace

    from samecommit.cli.locate import locate
    from samecommit.cli.serve import serve
    from samecommit.outbox.relays import STOP_SECONDS

    app = locate(target)
    app.dsn = check_dsn(dsn if dsn is not None else app.dsn, "the application's DSN")
    config = app.worker_config if doorbell is None else replace(app.worker_config, doorbell=doorbell)
    made = app.relay(config, only=[name for group in names for name in group] or None)
    to = ", ".join(destination.name for destination in made.destinations)
    return serve(made, Log("json" if manner.json else log_form), f"relay to {to}", grace_seconds=STOP_SECONDS)
