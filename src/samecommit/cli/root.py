"""The group of all commands, and the frame around each of them: errors become one line and an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from samecommit.cli.failure import Exit, tell
from samecommit.cli.options import Manner, common

COMMANDS = {
    "adopt": "samecommit.cli.adopt",
    "bench": "samecommit.cli.bench",
    "demo": "samecommit.cli.demo",
    "dev": "samecommit.cli.dev",
    "enqueue": "samecommit.cli.enqueue",
    "failures": "samecommit.cli.failures",
    "jobs": "samecommit.cli.jobs",
    "migrate": "samecommit.cli.migrate",
    "outbox": "samecommit.cli.outbox",
    "queues": "samecommit.cli.queues",
    "relay": "samecommit.cli.relay",
    "sql": "samecommit.cli.sql",
    "worker": "samecommit.cli.worker",
    "workers": "samecommit.cli.workers",
}


class LazyGroup(click.Group):
    """Imports a command's module when it is asked for; its attribute has the command's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command's name."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now."""
        if cmd_name in COMMANDS:
            found = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
            assert isinstance(found, click.Command)
            return found
        return super().get_command(ctx, cmd_name)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def samecommit() -> None:
    """Jobs and events that commit with your data, in PostgreSQL."""


@samecommit.command()
@common
def version(manner: Manner) -> None:
    """Print the version."""
    from samecommit import __version__

    manner.say({"version": __version__, "python": sys.version.split()[0]}, f"samecommit {__version__}")


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; nothing is raised but what the interpreter itself is told."""
    debug = "--debug" in arguments or bool(os.environ.get("SAMECOMMIT_DEBUG"))
    manner = Manner(json="--json" in arguments, debug=debug, arguments=tuple(arguments))
    try:
        status = samecommit.main(list(arguments), prog_name="samecommit", standalone_mode=False, obj=manner)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read us has seen enough; the interpreter must not complain about it when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - this is where every error ends
        return tell(error, manner)
    return status if isinstance(status, int) else Exit.OK


def main() -> None:
    """Run what the command line says and exit."""
    sys.exit(run(sys.argv[1:]))
