"""Not broken: code whose newest migration is the third, for a worker that is older than its schema."""

from samecommit.storage import migrate, query

VERSION = 3


def apply() -> None:
    """Know no later migration."""
    files = [file for file in query.migration_files() if file[0] <= VERSION]
    vars(migrate)["migration_files"] = lambda: files
