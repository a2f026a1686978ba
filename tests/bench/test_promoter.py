"""Jobs that are due at a rate are due at that rate, however long it takes to store them."""

import pytest

from samecommit.bench.place import open_place
from samecommit.bench.promoter import spread


@pytest.mark.session("settings from the connect on")
def test_due_times_count_from_one_moment(dsn: str) -> None:
    with open_place(dsn, may_disturb=True) as place:
        with place.connect() as conn:
            conn.execute(
                "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END'"
            )
            conn.execute("CREATE TRIGGER slow BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION dawdle()")
        spread(place, 10, 2, 100.0)
        with place.connect() as conn:
            row = conn.execute(
                "SELECT extract(epoch FROM max(run_at) - min(run_at))::float8, count(*) FROM job"
            ).fetchone()
    assert row == (1.9, 20)
