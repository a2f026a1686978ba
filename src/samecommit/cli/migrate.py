"""``samecommit migrate``: installs or upgrades the schema, and makes the queues of an application's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.options import Manner, common, database, describe_dsn, of_app, resolve_dsn

if TYPE_CHECKING:
    from samecommit.app import App
    from samecommit.storage.migrate import Migration


@click.command()
@click.option("--plan", is_flag=True, help="Show what would be applied and change nothing.")
@click.option("--sql", "as_sql", is_flag=True, help="Print every migration as SQL; needs no database.")
@click.option(
    "--app", "target", metavar="MODULE:APP", help="Also make the queues of its tasks; its DSN and schema serve."
)
@click.option(
    "--roles",
    is_flag=False,
    flag_value="",
    metavar="[PREFIX]",
    help="Also make the roles PREFIX_producer, PREFIX_worker and so on, and grant them what they need; the schema's name is "
    "the prefix unless one is given. With --sql their SQL is printed instead.",
)
@database
@common
def migrate(
    manner: Manner, target: str | None, roles: str | None, dsn: str | None, schema: str, *, plan: bool, as_sql: bool
) -> None:
    """Install the schema, or bring it to this version. Safe to repeat and to run from several places at once.

    A producer that is there before the first worker needs the queues of its tasks: make them here with --app.
    """
    from samecommit.storage import migrate as storage

    if as_sql:
        return manner.say(*(_as_sql(schema) if roles is None else _roles_as_sql(schema, roles)))
    app = _located(target)
    if app is None:
        address = resolve_dsn(dsn)
    else:
        address, schema = of_app(app, dsn, schema)
    where = f"schema {schema!r} of {describe_dsn(address)}"
    if plan:
        steps = _pending(address, schema)
        return manner.say(
            _described(steps, applied=False), *_lines(steps, f"to apply to {where}:", f"{where} is up to date")
        )
    steps = storage.migrate(address, schema)
    queues = [] if app is None else make_queues(address, app)
    lines = _lines(steps, f"applied to {where}:", f"{where} was up to date already")
    lines += [f"queues: {', '.join(queues)}"] if queues else []
    made = _make_roles(address, schema, roles)
    lines += [f"roles: {', '.join(made)}"] if made else []
    return manner.say({**_described(steps, applied=True), "queues": queues, "roles": made}, *lines)


def _make_roles(dsn: str, schema: str, prefix: str | None) -> list[str]:
    if prefix is None:
        return []
    from samecommit.storage.roles import make_roles

    return list(make_roles(dsn, schema, prefix or None).values())


def make_queues(dsn: str, app: App) -> list[str]:
    """Make the queues that an application's tasks name, and return their names; those that are there stay as they are."""
    from samecommit.storage.operate import Operator

    names = sorted({task.queue for task in app.definitions.values()})
    with Operator.connect(dsn, app.schema) as asked:
        for name in names:
            asked.create_queue(name)
    return names


def _located(target: str | None) -> App | None:
    from samecommit.cli.locate import locate

    return None if target is None else locate(target)


def _pending(dsn: str, schema: str) -> list[Migration]:
    import psycopg

    from samecommit.storage.migrate import pending

    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as conn:
        return pending(conn, schema)


def _as_sql(schema: str) -> tuple[list[dict[str, Any]], str]:
    from samecommit.storage.migrate import migrations, script

    return [{"version": s.version, "name": s.name, "sql": s.text} for s in migrations(schema)], script(schema)


def _roles_as_sql(schema: str, prefix: str) -> tuple[list[dict[str, Any]], str]:
    from samecommit.storage.roles import roles_script

    text = roles_script(schema, prefix or None)
    return [{"name": "roles", "sql": text}], text


def _described(steps: list[Migration], *, applied: bool) -> dict[str, Any]:
    return {"applied" if applied else "pending": [{"version": s.version, "name": s.name} for s in steps]}


def _lines(steps: list[Migration], some: str, none: str) -> list[str]:
    return [some, *(f"  {step.name}" for step in steps)] if steps else [none]
