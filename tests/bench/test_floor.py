"""The prototype works in a schema of its own, which goes with it."""

import psycopg
import pytest

from samecommit.bench.floor import prototype_drain
from samecommit.bench.place import open_place
from samecommit.bench.report import Report


@pytest.mark.session("settings from the connect on")
def test_the_prototype_leaves_nothing_behind_and_a_schema_of_the_user_s_alone(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA proto")
        conn.execute("CREATE TABLE proto.job (mine int)")
        with open_place(dsn, may_disturb=True) as place:
            assert prototype_drain(place, Report(), 200) > 0
            names = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'samecommit_bench%'").fetchall()
            assert names == [(place.schema,)]
        assert conn.execute("SELECT mine FROM proto.job").fetchall() == []
