"""``samecommit sql``: prints the contract in SQL, as the migrations declare it."""

from __future__ import annotations

import re

import click

from samecommit.cli.options import Manner, common

FUNCTIONS = (
    "enqueue", "retry", "cancel", "hold", "release", "replay", "why", "why_queue", "create_queue", "pause", "resume",
    "state_of", "contract_version",
)  # fmt: skip
VIEWS = ("jobs", "running", "attempts", "failure_groups", "queues")
_DECLARATION = r"(?P<comment>(?:^--[^\n]*\n)*)^CREATE {what} :\"schema\"\.(?P<name>\w+)(?P<signature>{rest})"
_FUNCTION = re.compile(
    _DECLARATION.format(what="FUNCTION", rest=r"\s*\(.*?\)\s*RETURNS\s+(?:TABLE\s*\([^)]*\)|[^\n]+)"),
    re.MULTILINE | re.DOTALL,
)
_VIEW = re.compile(_DECLARATION.format(what="VIEW", rest=" AS"), re.MULTILINE)


@click.command()
@click.option("--schema", default="samecommit", show_default=True, metavar="NAME", help="The schema to write.")
@common
def sql(manner: Manner, schema: str) -> None:
    """Print the functions and views that any language may use. Needs no database."""
    from samecommit.storage.query import migration_files, quote_name

    text = "\n\n".join(unrendered for _, _, unrendered in migration_files())
    home = quote_name(schema)
    functions = [_entry(home, found) for found in _FUNCTION.finditer(text) if found["name"] in FUNCTIONS]
    views = [_entry(home, found) for found in _VIEW.finditer(text) if found["name"] in VIEWS]
    printed = [f"{entry['comment']}\n{entry['declaration']};" for entry in functions]
    printed += [f"{entry['comment']}\nSELECT * FROM {home}.{entry['name']};".lstrip() for entry in views]
    manner.say({"functions": functions, "views": views}, "\n\n".join(printed))


def _entry(home: str, found: re.Match[str]) -> dict[str, str]:
    signature = " AS" not in found["signature"] and found["signature"].replace(':"schema"', home)
    return {
        "name": found["name"],
        "comment": found["comment"].strip(),
        "declaration": f"{home}.{found['name']}{signature or ''}",
    }
