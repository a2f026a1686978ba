"""``samecommit sql``: prints the contract in SQL, as the migrations declare it."""

from __future__ import annotations

import re

import click

from samecommit.cli.options import Manner, common

FUNCTIONS = (
    "enqueue", "enqueue_many", "retry", "cancel", "hold", "release", "replay", "why", "why_queue", "state_of",
    "create_queue", "pause", "resume", "contract_version",
    "emit", "emit_bytes", "add_destination", "remove_destination", "pause_destination", "resume_destination", "resolve",
    "replay_events", "cancel_replay", "why_destination", "why_event",
)  # fmt: skip
VIEWS = ("jobs", "running", "attempts", "failure_groups", "queues", "destinations", "replays")
_DECLARED = r"(?P<comment>(?:^--[^\n]*\n)*)^CREATE {what} :\"schema\"\.(?P<name>\w+)"
_PARENTHESES = r"\s*\((?:[^()]|\([^()]*\))*\)"
_FUNCTION = re.compile(
    _DECLARED.format(what="FUNCTION")
    + rf"(?P<signature>{_PARENTHESES}(?:\s*RETURNS\s+(?:TABLE{_PARENTHESES}|[^\n]+))?)",
    re.MULTILINE,
)
_VIEW = re.compile(_DECLARED.format(what="VIEW"), re.MULTILINE)


@click.command()
@click.option("--schema", default="samecommit", show_default=True, metavar="NAME", help="The schema to write.")
@common
def sql(manner: Manner, schema: str) -> None:
    """Print the functions and views that any language may use. Needs no database."""
    from samecommit.storage.query import migration_files, quote_name

    text = "\n\n".join(unrendered for _, _, unrendered in migration_files())
    home = quote_name(schema)
    functions = [
        _entry(home, found, found["signature"]) for found in _FUNCTION.finditer(text) if found["name"] in FUNCTIONS
    ]
    views = [_entry(home, found) for found in _VIEW.finditer(text) if found["name"] in VIEWS]
    printed = [f"{entry['comment']}\nFUNCTION {entry['declaration']}".lstrip() for entry in functions]
    printed += [f"{entry['comment']}\nVIEW {entry['declaration']}".lstrip() for entry in views]
    manner.say({"functions": functions, "views": views}, "\n\n".join(printed))


def _entry(home: str, found: re.Match[str], signature: str = "") -> dict[str, str]:
    declaration = f"{home}.{found['name']}{signature}".replace(':"schema"', home)
    return {"name": found["name"], "comment": found["comment"].strip(), "declaration": declaration}
