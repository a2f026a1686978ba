"""An installation with roles, in a database whose owner may make roles and is no superuser."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.database import SCHEMA, Database
from tests.support.pooler import behind

from samecommit.storage.migrate import migrate
from samecommit.storage.roles import ROLES, Role, make_roles

DBA = "samecommit_dba"
_numbers = itertools.count()


@dataclass(frozen=True)
class Site:
    """A database, and one user for each role beside who made it all."""

    dsn: str
    prefix: str
    port: int | None = None

    def user(self, role: Role) -> str:
        """Return the login that has only this role."""
        return f"{self.prefix}_{role}_user"

    def dsn_of(self, role: Role) -> str:
        """Return the address with which that user connects, through the pooler if there is one."""
        address = make_conninfo(self.dsn, user=self.user(role))
        return address if self.port is None else behind(address, self.port)

    def connect(self, role: Role | None = None, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """Connect as that user, or as who made the roles."""
        conn = psycopg.connect(self.dsn if role is None else self.dsn_of(role), autocommit=True)
        conn.execute("SET jit = off")  # compiling a look at every day takes seconds on PostgreSQL 15
        conn.autocommit = autocommit
        return conn


@contextmanager
def dba_database(server: Database) -> Iterator[str]:
    """Make an empty database of an ordinary user who may make roles."""
    server.execute(
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{DBA}') "
        f"THEN CREATE ROLE {DBA} LOGIN CREATEROLE; END IF; END $$"
    )
    with server.fresh(migrated=False) as address:
        name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
        server.execute(f"ALTER DATABASE {name} OWNER TO {DBA}")
        yield make_conninfo(address, user=DBA)


def make_site(dsn: str, port: int | None) -> Site:
    """Install with roles, and make a user for each."""
    made = Site(dsn, f"site{next(_numbers)}", port)
    migrate(dsn, SCHEMA)
    names = make_roles(dsn, SCHEMA, made.prefix)
    with made.connect() as conn:
        for role in ROLES:
            conn.execute(f'CREATE ROLE "{made.user(role)}" LOGIN IN ROLE "{names[role]}"'.encode())
    return made


@pytest.fixture
def dba_dsn(server: Database) -> Iterator[str]:
    with dba_database(server) as dsn:
        yield dsn


@pytest.fixture
def site(dba_dsn: str, port: int | None) -> Site:
    """An installation of the test's own."""
    return make_site(dba_dsn, port)


@pytest.fixture(scope="module")
def lasting_site(server: Database, port: int | None) -> Iterator[Site]:
    """An installation that no test changes."""
    with dba_database(server) as dsn:
        yield make_site(dsn, port)
