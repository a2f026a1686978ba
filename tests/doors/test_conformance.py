"""The same promises on every connection kind and driver: what commits is stored, what rolls back is not."""

import inspect
import secrets
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from tests.doors.kinds import Kind
from tests.support.engine import Actor
from tests.support.jobs import Jobs

from samecommit import App, Enqueued, EnqueuedMany
from samecommit.errors import LeaseLost, NotInTransaction, PayloadError, UnknownQueue
from samecommit.job import NewJob
from samecommit.storage.copying import Copier
from samecommit.worker.attempt import Attempt

pytestmark = pytest.mark.pg15
app = App()


@app.task()
def work(n: int, text: str = "") -> None: ...


@app.task()
async def awork(n: int) -> int:
    return n


async def now(value: Any) -> Any:
    """The value, awaited where the connection is asynchronous."""
    return await value if inspect.isawaitable(value) else value


async def store(conn: Any, job: NewJob[Any]) -> Enqueued[Any]:
    """Store one job as ``task.enqueue`` does."""
    from samecommit.storage.connections import perform
    from samecommit.storage.enqueue import enqueue

    return cast("Enqueued[Any]", await now(perform(conn, enqueue(job, app.schema))))


@pytest.fixture
def jobs(shared_dsn: str) -> Any:
    with psycopg.connect(shared_dsn, autocommit=True) as conn:
        yield Jobs(conn)


async def test_a_job_exists_if_and_only_if_its_transaction_commits(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        returned = work.enqueue(held.conn, n=1)
        assert inspect.iscoroutine(returned) is kind.is_async
        kept = cast("Enqueued[None]", await now(returned))
        assert kept.created is True
        assert jobs.state(kept.id) is None
        await now(held.commit())
        assert jobs.row(kept.id)["payload"] == {"n": 1}
        await now(held.begin())
        undone = cast("Enqueued[None]", await now(work.enqueue(held.conn, n=2)))
        await now(held.rollback())
        assert jobs.state(undone.id) is None


async def test_a_job_goes_with_its_savepoint(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        outer = await store(held.conn, work.job(n=1))
        undo = await now(held.nested())
        inner = await store(held.conn, work.job(n=2))
        many = cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, [work.job(n=3)])))
        await now(undo())
        await now(held.commit())
    assert [jobs.state(found) for found in (outer.id, inner.id, many[0].id)] == ["ready", None, None]


async def test_what_is_refused_before_sql_leaves_the_transaction_usable(
    kind: Kind, shared_dsn: str, jobs: Jobs
) -> None:
    """B01: known before any SQL."""
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        await now(held.execute("SELECT 1"))
        with pytest.raises(PayloadError, match="n"):
            await now(work.enqueue(held.conn, n="one"))  # type: ignore[call-overload]
        with pytest.raises(PayloadError, match="text"):
            await now(work.enqueue(held.conn, n=1, text="a\0b"))
        after = await store(held.conn, work.job(n=2))
        await now(held.commit())
    assert jobs.state(after.id) == "ready"


async def test_an_unknown_queue_is_named(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        with pytest.raises(UnknownQueue, match="no such queue") as caught:
            await store(held.conn, work.using(queue="no such queue").job(n=1))
        assert caught.value.__cause__ is not None
        await now(held.rollback())
        await now(held.begin())
        after = await store(held.conn, work.job(n=2))
        await now(held.commit())
    assert jobs.state(after.id) == "ready"


async def test_a_connection_that_commits_by_itself_is_refused_unless_it_is_meant(
    kind: Kind, shared_dsn: str, jobs: Jobs
) -> None:
    tag = secrets.token_hex(8)
    async with kind.open(shared_dsn, autocommit=True) as held:
        with pytest.raises(NotInTransaction, match="work"):
            await store(held.conn, work.using(tags=[tag]).job(n=1))
        with pytest.raises(NotInTransaction, match="work"):
            await now(app.enqueue_many(held.conn, [work.using(tags=[tag]).job(n=1)]))
        meant = await store(held.conn, work.using(own_transaction=True).job(n=2))
        assert jobs.state(meant.id) == "ready"
        fine = [work.job(n=3), work.job(n=4)]
        many = cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, fine, own_transaction=True)))
        assert [jobs.state(one.id) for one in many] == ["ready", "ready"]
        broken = [work.using(tags=[tag]).job(n=5), work.using(tags=[tag], queue="none such").job(n=6)]
        with pytest.raises(UnknownQueue):
            await now(app.enqueue_many(held.conn, broken, own_transaction=True))
    assert jobs.value("SELECT count(*) FROM $.jobs WHERE tags @> ARRAY[%s]", tag) == 0


async def test_every_option_and_every_text_crosses_the_driver(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    """B07: the same instant from every zone, whatever the session's zone and date style are."""
    run_at = datetime(2099, 7, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    odd = "a'b\"c\\d %s {0} :name $1 \n\t ü 🐘 \u2028"
    task = work.using(
        priority=-7,
        run_at=run_at,
        max_attempts=3,
        tags=[odd, "NULL", "{x,y}"],
        parent_id=2**60,
        effect_key=odd,
        expires_at=run_at + timedelta(days=1),
        meta={"actor": odd, "n": [1, None]},
    )
    large = odd * 500
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        await now(held.execute("SET LOCAL timezone = 'Asia/Kathmandu'"))
        await now(held.execute("SET LOCAL datestyle = 'SQL, DMY'"))
        found = [
            await store(held.conn, task.job(n=2**70, text=odd)),
            await store(held.conn, task.job(n=1, text=large)),
            *cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, [task.job(n=2**70, text=odd)]))),
        ]
        await now(held.commit())
    for one, text in zip(found, (odd, large, odd), strict=True):
        row = jobs.row(one.id)
        assert row["payload"] == {"n": 1 if text is large else 2**70, "text": text}
        assert (row["priority"], row["max_attempts"], row["parent_id"]) == (-7, 3, 2**60)
        assert (row["run_at"], row["expires_at"]) == (run_at, run_at + timedelta(days=1))
        assert (row["tags"], row["effect_key"]) == ([odd, "NULL", "{x,y}"], odd)
        assert row["meta"] == {"actor": odd, "n": [1, None]}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_any_isolation_level_will_do(kind: Kind, shared_dsn: str, jobs: Jobs, level: str) -> None:
    async with kind.open(shared_dsn, isolation=level) as held:
        await now(held.begin())
        ((shown,),) = [tuple(row) for row in await now(held.execute("SHOW transaction_isolation"))]
        assert shown == level.lower()
        one = await store(held.conn, work.using(unique=secrets.token_hex(8), delay=0.5).job(n=1))
        many = cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, [work.job(n=2)])))
        await now(held.commit())
    assert [jobs.state(one.id), jobs.state(many[0].id)] == ["ready", "ready"]


async def test_a_unique_key_comes_to_the_job_that_holds_it(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    key = secrets.token_hex(8)
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        first = await store(held.conn, work.using(unique=key).job(n=1))
        again = await store(held.conn, work.using(unique=key).job(n=2))
        both = [work.using(unique=key).job(n=3), work.job(n=4)]
        many = cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, both)))
        await now(held.commit())
    assert (again.id, again.created) == (first.id, False)
    assert [one.created for one in many] == [False, True]
    assert many[0].id == first.id
    assert jobs.row(first.id)["payload"] == {"n": 1}


async def test_a_batch_goes_its_way_and_is_stored_in_order(
    kind: Kind, shared_dsn: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    copy = Copier.copy

    def noted(self: Copier, chunk: Any) -> Any:
        copied.append(len(chunk))
        return copy(self, chunk)

    monkeypatch.setattr(Copier, "copy", noted)
    told: list[int] = []
    tag = secrets.token_hex(8)
    later = datetime(2099, 1, 1, tzinfo=UTC)
    shared = [work.using(tags=[tag]), work.using(tags=[tag], run_at=later), work.using(tags=[tag], delay=0)]
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        given = (shared[n % 3].job(n=n, text="x" * 2500 if n == 4000 else "a\\b\n") for n in range(5100))
        many = cast("EnqueuedMany[None]", await now(app.enqueue_many(held.conn, given, progress=told.append)))
        await now(held.commit())
    assert told == [5000, 5100]
    assert sum(copied) == (5100 if kind.copies else 0)
    assert len(many) == many.created == 5100
    rows = jobs.all(
        "SELECT id, (payload ->> 'n')::int, payload ->> 'text', run_at > '2098-01-01', "
        "       (SELECT j.pos IS NULL FROM $.job AS j WHERE j.id = v.id) "
        "FROM $.jobs AS v WHERE tags @> ARRAY[%s] ORDER BY 2",
        tag,
    )
    assert [row[0] for row in rows] == many.ids
    assert all(row[2] == ("x" * 2500 if row[1] == 4000 else "a\\b\n") for row in rows)
    assert all(row[3] is row[4] is (row[1] % 3 == 1) for row in rows)
    places = jobs.all("SELECT pos FROM $.job WHERE tags @> ARRAY[%s] AND pos IS NOT NULL ORDER BY id", tag)
    assert places == sorted(places)


async def test_a_batch_that_fails_leaves_nothing_and_spoils_nothing(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    """B01 (f): the bad one is named by its place; the others are not stored; the transaction goes on."""
    tag = secrets.token_hex(8)
    task = work.using(tags=[tag])
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        bad = (task.job(n=n, text="\0" if n == 5050 else "") for n in range(5100))
        with pytest.raises(PayloadError, match=r"job 5050 of the batch: .*text") as caught:
            await now(app.enqueue_many(held.conn, bad))
        assert (caught.value.index, caught.value.path) == (5050, "$.text")
        with pytest.raises(UnknownQueue, match="none such"):
            await now(app.enqueue_many(held.conn, [task.job(n=1), task.using(queue="none such").job(n=2)]))
        with pytest.raises(PayloadError, match=r"task\.job"):
            await now(app.enqueue_many(held.conn, [task]))  # type: ignore[list-item]
        after = await store(held.conn, work.job(n=2))
        await now(held.commit())
    assert jobs.state(after.id) == "ready"
    assert jobs.value("SELECT count(*) FROM $.jobs WHERE tags @> ARRAY[%s]", tag) == 0


class Owner:
    """A job that runs, and the run that owns it."""

    def __init__(self, jobs: Jobs) -> None:
        queue = secrets.token_hex(8)
        queue_id = jobs.value("SELECT $.create_queue(%s)", queue)
        self.job_id = jobs.value("SELECT id FROM $.enqueue('awork', '{\"n\": 1}', %s)", queue)
        self.actor = Actor(jobs.conn, kinds=("awork",)).register()
        ((_, self.claim_id),) = self.actor.claim(queue_id=queue_id)

    def attempt(self, claim_id: int | None = None) -> Attempt:
        host: Any = SimpleNamespace(schema=app.schema, lease_id=self.actor.lease_id, mark_dirty=lambda _: None)
        return Attempt((self.job_id,), claim_id or self.claim_id, awork.definition, host)


async def finish(kind: Kind, attempt: Attempt, conn: Any, result: Any) -> None:
    """Finish as an async handler does, and on a plain connection as a plain one does."""
    if kind.is_async:
        await attempt.finish_async(conn, result)
    else:
        attempt.finish(conn, result)


async def test_a_handler_ends_its_job_in_its_own_transaction(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    owner = Owner(jobs)
    attempt = owner.attempt()
    attempt.record({"model": "m"})
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        await finish(kind, attempt, held.conn, 41)
        await now(held.rollback())
        assert jobs.state(owner.job_id) == "running"
        await now(held.begin())
        await finish(kind, attempt, held.conn, 42)
        follower = await store(held.conn, work.job(n=1))
        assert jobs.state(owner.job_id) == "running"
        await now(held.commit())
    row = jobs.row(owner.job_id)
    assert (row["state"], row["result"]) == ("done", 42)
    assert jobs.attempts(owner.job_id)[0]["record"] == {"model": "m"}
    assert jobs.state(follower.id) == "ready"


async def test_a_run_that_lost_its_job_ends_nothing(kind: Kind, shared_dsn: str, jobs: Jobs) -> None:
    owner = Owner(jobs)
    async with kind.open(shared_dsn) as held:
        await now(held.begin())
        with pytest.raises(LeaseLost, match=str(owner.job_id)):
            await finish(kind, owner.attempt(claim_id=1), held.conn, 42)
        await now(held.rollback())
    async with kind.open(shared_dsn, autocommit=True) as held:
        with pytest.raises(NotInTransaction, match=str(owner.job_id)):
            await finish(kind, owner.attempt(), held.conn, 42)
    assert jobs.state(owner.job_id) == "running"


def test_the_documented_table_is_this_suite() -> None:
    from pathlib import Path

    from tests.doors.kinds import table

    page = (Path(__file__).parents[2] / "docs" / "reference" / "connections.md").read_text(encoding="utf-8")
    assert table() in page, table()
