"""One database for all tests of the doors on a server: they look at their own jobs only."""

from collections.abc import Iterator

import pytest
from tests.doors.kinds import KINDS, Kind
from tests.support.database import Database
from tests.support.pooler import behind


@pytest.fixture(scope="session")
def shared_dsn(server: Database, port: int | None) -> Iterator[str]:
    """A migrated database that these tests share."""
    with server.fresh() as address:
        yield address if port is None else behind(address, port)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.id)
def kind(request: pytest.FixtureRequest) -> Kind:
    """A connection kind on a driver."""
    found: Kind = request.param
    return found
