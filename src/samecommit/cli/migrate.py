"""``samecommit migrate``: installs or upgrades the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.options import Manner, common, database, describe_dsn, resolve_dsn

if TYPE_CHECKING:
    from samecommit.storage.migrate import Migration


@click.command()
@click.option("--plan", is_flag=True, help="Show what would be applied and change nothing.")
@click.option("--sql", "as_sql", is_flag=True, help="Print every migration as SQL; needs no database.")
@database
@common
def migrate(manner: Manner, dsn: str | None, schema: str, *, plan: bool, as_sql: bool) -> None:
    """Install the schema, or bring it to this version. Safe to repeat and to run from several places at once."""
    from samecommit.storage import migrate as storage

    if as_sql:
        return manner.say(*_as_sql(storage.migrations(schema)))
    address = resolve_dsn(dsn)
    where = f"schema {schema!r} of {describe_dsn(address)}"
    if plan:
        import psycopg

        with psycopg.connect(address, autocommit=True) as conn:
            steps = storage.pending(conn, schema)
        return manner.say(
            _described(steps, applied=False), *_lines(steps, f"to apply to {where}:", f"{where} is up to date")
        )
    steps = storage.migrate(address, schema)
    text = f"applied to {where}:"
    return manner.say(_described(steps, applied=True), *_lines(steps, text, f"{where} was up to date already"))


def _as_sql(steps: list[Migration]) -> tuple[list[dict[str, Any]], str]:
    text = "\n".join(f"-- migration {step.name}\n{step.text}" for step in steps)
    return [{"version": s.version, "name": s.name, "sql": s.text} for s in steps], text


def _described(steps: list[Migration], *, applied: bool) -> dict[str, Any]:
    return {"applied" if applied else "pending": [{"version": s.version, "name": s.name} for s in steps]}


def _lines(steps: list[Migration], some: str, none: str) -> list[str]:
    return [some, *(f"  {step.name}" for step in steps)] if steps else [none]
