"""B23: what an administrator runs by hand, roles that may not change the schema, and numbers beyond 32 and 53 bits."""

from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.workers import running_worker

from samecommit import App, AsyncContext
from samecommit.storage.migrate import migrate, script

pytestmark = pytest.mark.pg15


@pytest.mark.parametrize("schema", ["jobs", "we\"ird; Sch'e%ma"])
def test_b23h_the_printed_script_installs_what_migrate_does(empty_dsn: str, schema: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(script(schema).encode())
        assert migrate(empty_dsn, schema) == []
        assert Jobs(conn, schema).value("SELECT created FROM $.enqueue('work', unique_key => 'k')") is True
        granted = Jobs(conn, schema).all(
            "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')",
            '"' + schema.replace('"', '""') + '"',
        )
    assert granted == []


@pytest.mark.parametrize("start", [2**31 - 5, 2**53 + 1])
async def test_b23g_ids_beyond_32_and_53_bits_pass_through_every_call(dsn: str, jobs: Jobs, start: int) -> None:
    for sequence in ("job_id_seq", "pos_seq"):
        jobs.all(f"SELECT setval('samecommit.{sequence}', %s)", start)
    seen: list[int] = []
    app = App(dsn)

    @app.task()
    async def work(ctx: AsyncContext, n: int) -> int:
        seen.append(ctx.job.id)
        return ctx.job.id

    async with running_worker(app):
        one = app.enqueue(work.using(unique="k").job(1))
        with psycopg.connect(dsn) as conn:
            many = app.enqueue_many(conn, [work.using(parent_id=one.id).job(n) for n in range(20)])
        for job_id in (one.id, *many.ids):
            assert (await jobs.ended(job_id))["result"] == job_id
        replayed = jobs.value("SELECT id FROM $.replay(%s)", [one.id])
        await jobs.ended(replayed)
    assert min(seen) > start
    assert (jobs.row(replayed)["replay_of"], jobs.row(many.ids[0])["parent_id"]) == (one.id, one.id)
    later = app.enqueue(work.using(delay=3600).job(2)).id
    calls: dict[str, Any] = {
        "hold(%s, 'look')": "held",
        "release(%s)": "released",
        "cancel(%s)": "cancelled",
        "retry(%s)": "retried",
    }
    for call, answer in calls.items():
        assert jobs.value(f"SELECT $.{call}", later) == answer
    assert jobs.value("SELECT bool_and(pos > %s) FROM $.job", start) is True
