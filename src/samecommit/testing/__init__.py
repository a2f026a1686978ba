"""For tests of applications: contexts without a database, a database per test, draining, and proof of idempotence.

::

    async def test_enrich_writes_the_company(samecommit_dsn):            # a fresh migrated database, from the pytest plugin
        with psycopg.connect(samecommit_dsn) as conn:
            enrich.enqueue(conn, lead_id=42)
            assert_enqueued(conn, enrich, lead_id=42)
        assert (await drain_async(app)).done == 1

    async def test_enrich_asks_for_a_person():                            # no database at all
        with pytest.raises(Hold):
            await enrich(async_context(attempt=3), 42)
"""

from samecommit.testing.asserting import assert_enqueued, enqueued, round_trip
from samecommit.testing.contexts import FakeRun, async_context, context
from samecommit.testing.crashing import Crash, crash_at_every_point, crash_at_every_point_async
from samecommit.testing.draining import Drained, drain, drain_async

__all__ = [
    "Crash",
    "Drained",
    "FakeRun",
    "assert_enqueued",
    "async_context",
    "context",
    "crash_at_every_point",
    "crash_at_every_point_async",
    "drain",
    "drain_async",
    "enqueued",
    "round_trip",
]
