import contextlib
import csv
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from samecommit import App
from samecommit.demo.errors import LeadsFileError
from samecommit.demo.intake import SAMPLE, Lead, read_leads
from samecommit.demo.lead_table import values
from samecommit.demo.pipeline import Pipeline, PipelineInput
from samecommit.demo.run import DemoOptions, run
from samecommit.demo.tasks import TABLE, tasks
from samecommit.demo.watching import DELIVERY, FOUND, Attempts, Watch
from samecommit.errors import DemoError

ROOT = Path(__file__).parents[2]
# slow enough that the worker which is killed has its hands full, and in a burst of refusals now and then
MODEL = ("--latency-seconds", 0.3, "--burst-every", 60, "--burst-seconds", 0.5)
CRM = ("--dropped", 0.2, "--latency-seconds", 0.02)


@pytest.fixture
def leads(tmp_path: Path) -> Path:
    """Every ninth lead of the sample."""
    path = tmp_path / "few.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["email", "name", "company", "message"])
        writer.writerows([lead.email, lead.name, lead.company, lead.message] for lead in few())
    return path


def few() -> Sequence[Lead]:
    return read_leads(SAMPLE).leads[::9]


def settings(app: str | None = None) -> Callable[..., PipelineInput]:
    """Make the input of a run: few leads at a high pace, services that are worse than usual, a short patience."""
    chosen = partial(PipelineInput, patience_seconds=10, model_args=MODEL, crm_args=CRM)
    return chosen if app is None else partial(chosen, app=f"tests.demo.broken:{app}")


def shown(options: DemoOptions) -> tuple[int, str]:
    console = Console(width=100, record=True, file=io.StringIO())
    return run(options, console), console.export_text()


def test_every_lead_is_accounted_for_although_a_worker_is_killed(
    dsn: str, leads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samecommit.demo.run.PipelineInput", settings())
    status, text = shown(DemoOptions(leads=leads, dsn=dsn, per_second=80))
    assert status == 0, text
    assert "lost 0, duplicates 0" in text
    assert "killed the importer, and a worker" in text
    with psycopg.connect(dsn, autocommit=True) as conn:
        watch = Watch(conn, TABLE)
        assert {row.email for row in watch.lead_rows()} == {lead.email for lead in few()}
        attempts, held = watch.attempts(), watch.held()
        snapshot = watch.snapshot()
    assert count(attempts, "lost", "crashed") > 0
    assert count(attempts, "rate limited") > 0
    assert count(attempts, "done", note=FOUND) > 0
    assert count(attempts, "held") == len(held) + 5
    assert count(attempts, "failed") > 0
    assert snapshot.count("done", kind="classify") == sum(
        n for (kind, _), n in snapshot.jobs.items() if kind == DELIVERY
    )


def test_without_read_back_the_audit_finds_duplicates_and_the_command_ends_with_1(
    dsn: str, leads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setattr("samecommit.demo.run.PipelineInput", settings("without_read_back"))
    status, text = shown(DemoOptions(leads=leads, dsn=dsn, per_second=80))
    assert status == 1
    assert "The two sides do not agree" in text
    assert "doubled" in text[text.index("Discrepancies") :]


@pytest.mark.slow
@pytest.mark.parametrize(("app", "verdict"), [("without_reaper", "unfinished"), ("done_without_doing", "lost")])
def test_the_audit_finds_what_a_broken_build_does(
    dsn: str, leads: Path, monkeypatch: pytest.MonkeyPatch, app: str, verdict: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    App(dsn, tasks=[tasks]).migrate()
    emails = frozenset(lead.email for lead in few())
    with ExitStack() as stack:
        what = settings(app)(dsn=dsn, leads=leads, emails=emails, folder=leads.parent, per_second=80)
        audit = Pipeline(what, stack).run().audit
    assert {finding.verdict for finding in audit.discrepancies} == {verdict}


def test_a_database_with_the_leads_of_an_earlier_run_is_refused(dsn: str, leads: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLE.create)
        conn.execute(TABLE.insert, values(few()[0]))
    with pytest.raises(DemoError, match="'lead_intake' holds the leads of an earlier run"):
        run(DemoOptions(leads=leads, dsn=dsn), Console(file=io.StringIO()))


def test_a_file_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("email\nnobody\n")
    with pytest.raises(LeadsFileError, match=r"no row of none\.csv can be used"):
        run(DemoOptions(leads=path), Console(file=io.StringIO()))


def children(pid: int) -> list[int]:
    """The processes that this one has started; whoever else ends meanwhile is not of interest."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            after_name = path.read_text().rpartition(")")[2].split()
            if int(after_name[1]) == pid:
                found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc, which is Linux")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_it_leaves_no_process_and_no_file(
    dsn: str, leads: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    command = [sys.executable, "-m", "samecommit", "demo", "--leads", str(leads), "--dsn", dsn]
    env = {**os.environ, "TMPDIR": str(files)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as demo:
        signal.signal(signal.SIGINT, before)
        assert demo.stdout is not None
        assert any(line.startswith("  0 s") for line in demo.stdout)
        started = children(demo.pid)
        assert len(started) == 5  # two workers, the importer, the model and the CRM
        demo.send_signal(number)
        demo.communicate(timeout=60)
    assert demo.returncode == status
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(files.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_sample_beside_the_common_way() -> None:
    status, text = shown(DemoOptions(naive=True))
    assert status == 0
    lost = next(line for line in text.splitlines() if line.strip().startswith("lost  ")).split()
    assert lost[1] == "0"
    assert all(int(number) > 0 for number in lost[2:])


def count(attempts: list[Attempts], *outcomes: str, note: str | None = None) -> int:
    return sum(one.count for one in attempts if one.outcome in outcomes and note in (None, one.note))
