"""Not broken: code whose newest migration is the third, for a worker that is older than its schema."""

from samecommit.storage import migrate, query

VERSION = 3


def apply() -> None:
    """Know no later migration."""
    files = query.migration_files()
    migrate.migration_files = lambda: [file for file in files if file[0] <= VERSION]  # type: ignore[assignment]
