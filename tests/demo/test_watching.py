import io
from collections.abc import Iterator

import psycopg
import pytest
from rich.console import Console, RenderableType

from samecommit.demo import screen
from samecommit.demo.audit import JobRow
from samecommit.demo.intake import Lead, parse_leads
from samecommit.demo.lead_table import LeadTable, values
from samecommit.demo.watching import DELIVERY, FOUND, Attempts, HeldLead, ModelCalls, Snapshot, Watch
from samecommit.embedded import EmbeddedServer
from samecommit.storage.migrate import migrate

TABLE = LeadTable("lead_intake")


@pytest.fixture(scope="module")
def conn() -> Iterator[psycopg.Connection]:
    """An engine's tables with two leads, of which one is held; nothing here changes them but the last test."""
    with EmbeddedServer() as server:
        migrate(server.dsn, "samecommit")
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute(TABLE.create)
            conn.execute("INSERT INTO samecommit.queue (name) VALUES ('leads')")
            for row in (2, 3):
                conn.execute(TABLE.insert, values(Lead(row=row, email=f"a{row}@b.example")))
                payload = f'{{"lead_id": {row - 1}, "facts": {{"name": "Ann"}}}}'
                conn.execute("SELECT samecommit.enqueue('enrich', %s::jsonb, queue => 'leads')", (payload,))
            conn.execute("SELECT samecommit.hold(1, 'not sure')")
            yield conn


@pytest.fixture
def watch(conn: psycopg.Connection) -> Watch:
    return Watch(conn, TABLE)


def test_leads_and_jobs_are_counted(watch: Watch) -> None:
    seen = watch.snapshot()
    assert (seen.arrived, seen.delivered) == (2, 0)
    assert seen.count("held") == seen.count("ready", kind="enrich") == 1
    assert not seen.is_quiet


def test_both_sides_of_the_audit_are_read_with_the_lead_of_each_job(watch: Watch) -> None:
    assert [lead.id for lead in watch.lead_rows()] == [1, 2]
    assert sorted(watch.job_rows(), key=lambda job: job.lead_id) == [
        JobRow(lead_id=1, kind="enrich", state="held", reason="not sure"),
        JobRow(lead_id=2, kind="enrich", state="ready"),
    ]


def test_a_classified_lead_without_a_delivery_is_not_done_with() -> None:
    jobs = {("enrich", "done"): 2, ("classify", "done"): 2, (DELIVERY, "done"): 1}
    assert not Snapshot(arrived=2, delivered=1, jobs=jobs).is_quiet
    assert Snapshot(arrived=2, delivered=1, jobs={**jobs, (DELIVERY, "failed"): 1}).is_quiet


def test_model_calls_are_summed_from_what_attempts_recorded(watch: Watch) -> None:
    assert watch.model_calls() == []


def test_a_held_job_runs_again_with_the_decision(watch: Watch, conn: psycopg.Connection) -> None:
    held = watch.held()
    assert [(lead.job_id, lead.reason) for lead in held] == [(1, "not sure")]
    watch.release(1, {"label": "hot"})
    assert conn.execute("SELECT state, decision FROM samecommit.jobs WHERE id = 1").fetchone() == (
        "ready",
        {"label": "hot"},
    )


def rendered(what: RenderableType) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def test_the_screen_says_how_far_every_step_is() -> None:
    jobs = {("enrich", "done"): 7, ("classify", "ready"): 4, ("classify", "running"): 3, ("classify", "held"): 2}
    text = rendered(screen.progress(Snapshot(arrived=9, delivered=5, jobs=jobs), expected=20, notes=["[killed]"]))
    assert "9 of 20 leads" in text
    assert "0 done, 3 running, 4 waiting" in text
    assert "5 in the CRM, 2 held for a person, 0 failed" in text
    assert "[killed]" in text


def test_the_screen_shows_one_refused_row_of_each_group() -> None:
    text = rendered(screen.intake_table(parse_leads("email\na@b.example\n[x]\n-\ny\n"), "leads.csv"))
    assert "leads.csv: 4 rows" in text
    assert "row 3: not an e-mail address: '[x]'" in text
    assert "'y'" not in text


def test_the_screen_tells_which_held_leads_were_decided() -> None:
    held = [HeldLead(job_id=number, reason="not sure", data={"message": "[b]"}) for number in (1, 2)]
    text = rendered(screen.held_table(held, released=[2]))
    assert "yes" not in next(line for line in text.splitlines() if line.split()[:1] == ["1"])
    assert "yes" in next(line for line in text.splitlines() if line.split()[:1] == ["2"])
    assert "[b]" in text


def test_the_screen_shows_what_the_model_cost() -> None:
    calls = ModelCalls(model="m", prompt_version="p/3", outcome="hot", calls=7, tokens=4711)
    assert "4711" in rendered(screen.calls_table([calls]))


def test_the_screen_sums_attempts_and_hides_no_ending_that_it_does_not_know() -> None:
    attempts = [
        Attempts(kind=DELIVERY, outcome="retry", note="", count=3),
        Attempts(kind=DELIVERY, outcome="error", note="", count=4),
        Attempts(kind=DELIVERY, outcome="done", note=FOUND, count=5),
        Attempts(kind="classify", outcome="eaten", note="", count=6),
    ]
    lines = rendered(screen.attempts_table(attempts)).splitlines()
    assert next(line.split() for line in lines if "tried again" in line)[-3:] == ["0", "0", "7"]
    assert next(line.split() for line in lines if "eaten" in line) == ["eaten", "0", "6", "0"]
    assert next(line.split() for line in lines if "found" in line)[-1] == "5"


def test_the_screen_offers_the_comparison_only_to_who_has_not_seen_it() -> None:
    assert "--naive" in rendered(screen.next_steps(naive=False))
    assert "--naive" not in rendered(screen.next_steps(naive=True))


def test_what_is_left_running_can_be_pasted() -> None:
    text = rendered(screen.left_running({"SAMECOMMIT_DSN": "postgresql://x/y?z=1&a"}, 7))
    assert "export SAMECOMMIT_DSN='postgresql://x/y?z=1&a'" in text
    assert 'samecommit jobs release 7 --decision \'{"label": "hot"}\'' in text
    assert "release" not in rendered(screen.left_running({}, None))


def test_a_worker_s_jobs_are_stranded_until_they_are_given_back(watch: Watch, conn: psycopg.Connection) -> None:
    conn.execute(
        "INSERT INTO samecommit.worker (lease_id, expires_at, pid, concurrency, host, version, queues, kinds)"
        " VALUES (5, clock_timestamp() + interval '1 h', 4711, 1, 'h', '0', '{}', '{}')"
    )
    conn.execute("INSERT INTO samecommit.claim (claim_id, lease_id, ids) VALUES (6, 5, '{1}')")
    assert watch.busiest([4711, 4712]) == (4711, 0)
    conn.execute("UPDATE samecommit.job SET claim_id = 6, claimed_at = clock_timestamp() WHERE id = 1")
    assert watch.busiest([4712, 4711]) == (4711, 1)
    stranded = watch.stranded(4711)
    assert (stranded.leases, stranded.jobs) == ((5,), 1)
    assert watch.still_stranded(stranded)
    conn.execute("UPDATE samecommit.job SET claim_id = NULL WHERE id = 1")
    assert not watch.still_stranded(stranded)
