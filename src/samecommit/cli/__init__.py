"""The command line: ``samecommit`` and ``python -m samecommit``.

One module per group of commands, imported when its command is asked for, so that ``samecommit jobs`` loads neither the
worker nor the demo. `root` knows their names; `failure` turns errors into one line and an exit status.
"""

from samecommit.cli.root import main, run

__all__ = ["main", "run"]
