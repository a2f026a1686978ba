"""``samecommit dev``: a server, the schema and a worker in one terminal, for developing."""

from __future__ import annotations

import os
from pathlib import Path

import click

from samecommit.cli.log import Format, Log
from samecommit.cli.options import Manner, common


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Where its data stay; else they go with it."
)
@click.option("--concurrency", type=int, metavar="N", help="Handlers at once.")
@click.option("--log", "log_form", type=click.Choice(["text", "json"]), default="text", help="The form of the lines.")
@common
def dev(manner: Manner, target: str | None, data: Path | None, concurrency: int | None, log_form: Format) -> int:
    """Run an application on a PostgreSQL of its own: start the server, migrate, work.

    The server is shared by everything that names the same --data, and lives as long as one of them. Other processes of
    the application find it by the printed SAMECOMMIT_DSN. Run it again after a change: it does not reload.
    """
    from dataclasses import replace

    from samecommit.cli.locate import locate
    from samecommit.cli.migrate import make_queues
    from samecommit.cli.serve import serve
    from samecommit.cli.worker import describe
    from samecommit.embedded import EmbeddedServer
    from samecommit.storage.migrate import migrate

    log = Log("json" if manner.json else log_form)
    log.write(
        "info",
        "StartingServer",
        f"starting PostgreSQL on {data or 'a temporary directory'}; the first time takes longest",
    )
    with EmbeddedServer(data) as server:
        os.environ["SAMECOMMIT_DSN"] = server.dsn
        app = locate(target)
        applied = migrate(server.dsn, app.schema)
        make_queues(server.dsn, app)
        log.write("info", "Ready", f"SAMECOMMIT_DSN='{server.dsn}'", dsn=server.dsn, applied=len(applied))
        config = app.worker_config if concurrency is None else replace(app.worker_config, concurrency=concurrency)
        app.dsn = server.dsn
        worker = app.worker(config)
        return serve(worker, log, describe(worker), grace_seconds=config.grace_seconds)
