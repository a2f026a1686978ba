"""Hot statements keep their index plan through the history that breaks plans.

A worker prepares its statements while the tables are empty and analysed, which is how an idle queue looks, and goes on with
those plans when 300,000 rows have come and nobody has analysed since. What counts is how many buffers a statement touches
and how many rows its scans visit, not how long it takes.
"""

from collections.abc import Iterator

import psycopg
import pytest
from tests.plans.hot import HOT, Hot, Session, buffers_of, check, each_hot_statement, fill, history
from tests.support.database import Database
from tests.support.engine import Actor, set_session
from tests.support.jobs import Jobs

ROWS = 300_000
FILL = fill(ROWS, later=ROWS // 3, ended=0)

pytestmark = [pytest.mark.pg15, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def session(server: Database) -> Iterator[Session]:
    with history(server, FILL) as made:
        yield made


@each_hot_statement
def test_a_statement_prepared_on_empty_tables_stays_cheap_when_they_fill(session: Session, hot: Hot) -> None:
    check(hot, session.explain(hot, {**hot.empty, **hot.full}), hot.buffers)


def test_without_a_worker_s_settings_the_same_history_breaks_the_plans(server: Database) -> None:
    with history(server, FILL, with_settings=False) as session:
        spoilt = [hot.label for hot in HOT if buffers_of(session.explain(hot, {**hot.empty, **hot.full})) > hot.buffers]
    assert spoilt, "this test shows nothing"


def test_claims_stay_hot_while_a_transaction_pins_what_they_leave_behind(
    dsn: str, jobs: Jobs, server: Database
) -> None:
    jobs.all(
        "INSERT INTO $.job (pos, queue_id, kind, payload) SELECT nextval('samecommit.pos_seq'), 1, 'work', '{}' FROM generate_series(1, 20000)"
    )
    with psycopg.connect(dsn) as pin, psycopg.connect(dsn, autocommit=True) as conn:
        pin.execute("SET default_transaction_isolation = 'repeatable read'")
        pin.commit()
        pin.execute("SELECT count(*) FROM samecommit.job")
        set_session(conn)
        actor = Actor(conn).register()
        claimed = 0
        while pairs := actor.claim(500):
            claimed += len(pairs)
        conn.execute("SELECT pg_stat_force_next_flush()")
        hot, updated = jobs.all("SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'job'")[0]
    assert (claimed, updated) == (20_000, 20_000)
    assert hot >= 0.99 * updated
