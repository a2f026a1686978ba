"""``samecommit adopt``: lets workers work in a database that is a copy."""

from __future__ import annotations

import click

from samecommit.cli.options import Manner, common, database, operator


@click.command()
@click.option("--copy", "is_copy", is_flag=True, help="The original lives on: give this one a name of its own.")
@database
@common
def adopt(manner: Manner, is_copy: bool, dsn: str | None, schema: str) -> None:
    """Let workers claim and relay in a database that was restored or cloned.

    A restored or cloned database waits, so that no copy runs the jobs or delivers the events of its original. Adopt it
    when it takes the original's place: after a restore, or after pg_upgrade. What ran or was sent after the backup
    was made runs and is sent again, under the same effect keys.

    With --copy the original goes on working, and this one becomes an installation of its own: what it does has other effect
    keys. Cancel first what must not happen twice.
    """
    with operator(dsn, schema) as asked:
        is_adopted = asked.adopt(is_copy=is_copy)
    said = (
        "this database is the installation's home now"
        if is_adopted
        else "this database is its installation's home already"
    )
    manner.say({"adopted": is_adopted, "copy": is_adopted and is_copy}, said)
