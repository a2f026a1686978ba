"""Each role tries everything there is, and may do what the table of rights says, no more and no less."""

import pytest
from psycopg import errors as pg
from tests.roles.attempts import allowed, catalogue, declared
from tests.roles.conftest import Site

from samecommit.storage.roles import ACCESS, ROLES, Role

pytestmark = pytest.mark.pg15

PARTITIONED = {"job_history", "attempt", "body", "event"}


def test_everything_in_the_schema_is_in_the_table_of_rights_and_the_reverse(lasting_site: Site) -> None:
    with lasting_site.connect() as conn:
        there = {(what, name) for what, name, _ in catalogue(conn)}
    assert there == {(what, name) for what, grants in ACCESS.items() for name in grants}, (
        "declare it in storage/roles.py"
    )


def test_tables_by_day_are_those_that_the_maintainer_owns(lasting_site: Site) -> None:
    with lasting_site.connect() as conn:
        rows = conn.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'samecommit'::regnamespace AND relkind = 'p' "
            "AND NOT relispartition AND relowner = %s::regrole",
            [f"{lasting_site.prefix}_maintainer"],
        ).fetchall()
    assert {row[0] for row in rows} == PARTITIONED


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says(lasting_site: Site, role: Role) -> None:
    with lasting_site.connect() as conn:
        things = catalogue(conn)
    with lasting_site.connect(role) as conn:
        assert allowed(conn, things) == declared(role, things, PARTITIONED)


@pytest.mark.parametrize("role", ROLES)
def test_only_owners_may_change_the_schema(lasting_site: Site, role: Role) -> None:
    changes = {
        "CREATE TABLE samecommit.mine ()": {"owner", "maintainer"},
        "CREATE FUNCTION samecommit.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'": {"owner", "maintainer"},
        "DROP TABLE samecommit.job CASCADE": {"owner"},
        "DROP TABLE samecommit.job_history CASCADE": {"owner", "maintainer"},
        "ALTER FUNCTION samecommit.contract_version() STABLE": {"owner"},
    }
    with lasting_site.connect(role) as conn:
        for change, may in changes.items():
            try:
                with conn.transaction(force_rollback=True):
                    conn.execute(change.encode())
            except pg.InsufficientPrivilege:
                assert role not in may, change
            else:
                assert role in may, change


def test_a_worker_has_none_of_the_maintainers_rights_until_it_becomes_it(lasting_site: Site) -> None:
    with lasting_site.connect("worker", autocommit=False) as conn:
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute("DROP TABLE samecommit.job_history")
        conn.rollback()
        conn.execute(f'SET ROLE "{lasting_site.prefix}_maintainer"'.encode())
        conn.execute("DROP TABLE samecommit.job_history CASCADE")
        conn.rollback()


def test_somebody_without_a_role_may_nothing(lasting_site: Site) -> None:
    with lasting_site.connect() as conn:
        things = catalogue(conn)
        conn.execute(f'CREATE ROLE "{lasting_site.prefix}_nobody" LOGIN'.encode())
    stranger = Site(
        lasting_site.dsn.replace("user=samecommit_dba", f"user={lasting_site.prefix}_nobody"), lasting_site.prefix
    )
    with stranger.connect() as conn:
        assert conn.execute("SELECT current_user").fetchone() == (f"{lasting_site.prefix}_nobody",)
        assert allowed(conn, things) == set()
