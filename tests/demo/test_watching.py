import io
from collections.abc import Iterator

import psycopg
import pytest
from rich.console import Console, RenderableType

from samecommit.demo import screen
from samecommit.demo.audit import JobRow
from samecommit.demo.intake import Lead, parse_leads
from samecommit.demo.lead_table import LeadTable, values
from samecommit.demo.watching import HeldLead, ModelCalls, Snapshot, Watch
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
    assert "5 in the CRM   2 held for a person   0 failed" in text
    assert "[killed]" in text


def test_the_screen_shows_one_refused_row_of_each_group() -> None:
    text = rendered(screen.intake_table(parse_leads("email\na@b.example\n[x]\n-\ny\n"), "leads.csv"))
    assert "leads.csv: 4 rows" in text
    assert "row 3: not an e-mail address: '[x]'" in text
    assert "'y'" not in text


def test_the_screen_tells_which_held_leads_were_decided() -> None:
    held = [HeldLead(job_id=number, reason="not sure", data={"message": "[b]"}) for number in (1, 2)]
    text = rendered(screen.held_table(held, released=[2]))
    assert "yes" not in next(line for line in text.splitlines() if "│ 1 " in line)
    assert "yes" in next(line for line in text.splitlines() if "│ 2 " in line)
    assert "[b]" in text


def test_the_screen_shows_what_the_model_cost() -> None:
    calls = ModelCalls(model="m", prompt_version="p/3", outcome="hot", calls=7, tokens=4711)
    assert "4711" in rendered(screen.calls_table([calls]))
