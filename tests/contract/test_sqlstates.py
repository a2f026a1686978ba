"""Every SQLSTATE of class SC is raised by what the page says, and the page lists every one that the functions can raise."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg15

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/sql-contract.md"
MIGRATIONS = ROOT / "src/samecommit/storage/sql/migrations"
NOBODY = 999_999_999

CAUSES: list[tuple[str, str, list[Any], str]] = [
    ("SC001", "enqueue('work', queue => 'nowhere')", [], "unknown queue 'nowhere'"),
    ("SC001", "enqueue_many(%s)", [Jsonb([{"kind": "work", "queue": "nowhere"}])], "unknown queue 'nowhere'"),
    (
        "SC001",
        "replay(ARRAY[(SELECT max(id) FROM samecommit.jobs)], queue => 'nowhere')",
        [],
        "unknown queue 'nowhere'",
    ),
    ("SC001", "pause('nowhere')", [], "unknown queue 'nowhere'"),
    ("SC001", "resume('nowhere')", [], "unknown queue 'nowhere'"),
    *(
        ("SC002", f"{call}", [NOBODY], f"no job {NOBODY}")
        for call in ("cancel(%s)", "hold(%s, 'why')", "release(%s)", "retry(%s)", "state_of(%s)")
    ),
    ("SC004", "enqueue('work', unique_scope => 's')", [], "without unique_key"),
    ("SC004", "enqueue('work', unique_key => '')", [], "unique key ''"),
    ("SC004", "enqueue('work', unique_key => 'k', unique_for => '0 seconds')", [], "window 00:00:00"),
    ("SC004", "enqueue('work', unique_key => 'k', on_conflict => 'ignore')", [], "on_conflict is 'ignore'"),
    ("SC004", "enqueue_many('{}')", [], "jobs is object"),
    ("SC004", 'enqueue_many(\'[{"kind": "work", "colour": 1}]\')', [], "unknown key"),
    ("SC004", "create_queue('mail', 'for ever')", [], "unknown retention 'for ever'"),
    ("SC004", "create_queue(E'a\\tb')", [], "queue name"),
    ("SC004", "replay_events('there')", [], "a replay of everything"),
    ("SC004", "replay_events('there', keys => '{a}', per_second => 0)", [], "a rate of 0"),
    ("SC004", "replay_events('there', until_at => '2000-01-01')", [], "all of it is gone"),
    ("SC004", "replay_events('there', since_at => '2000-01-02', until_at => '2000-01-01')", [], "nothing was emitted"),
    ("SC006", "replay_events('nowhere', keys => '{a}')", [], "there is no destination 'nowhere'"),
    (
        "SC005",
        "enqueue('work', unique_key => 'taken', on_conflict => 'reject')",
        [],
        "unique key 'taken' of 'work' is taken by job",
    ),
]


@pytest.fixture
def ready(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute("SELECT samecommit.enqueue('work', unique_key => 'taken')")
    conn.execute("UPDATE samecommit.event_window SET made_at = made_at - interval '1 year'")
    conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    return conn


@pytest.mark.parametrize(("state", "call", "values", "words"), CAUSES, ids=[f"{c[0]} {c[1]}" for c in CAUSES])
def test_a_cause_raises_its_sqlstate_and_says_what_to_do(
    ready: psycopg.Connection[Any], state: str, call: str, values: list[Any], words: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        ready.execute(f"SELECT samecommit.{call}".encode(), values)
    assert (caught.value.sqlstate, caught.value.diag.message_hint) != (state, "")
    assert caught.value.sqlstate == state
    assert words in str(caught.value)


@pytest.mark.parametrize("number", [32_768, -32_769, 2_147_483_647])
@pytest.mark.parametrize(
    ("call", "says", "hint"),
    [
        ("enqueue('work', max_attempts => {n})", "max_attempts is {n}", "give 1 to 32767"),
        ("enqueue('work', max_attempts => {n}, unique_key => 'k')", "max_attempts is {n}", "give 1 to 32767"),
        ("enqueue('work', priority => {n}, unique_key => 'taken', on_conflict => 'replace')", "priority is {n}", "give -100 to 100"),
        ("enqueue('work', payload_version => {n})", "payload_version is {n}", "give 0 to 32767"),
        ("""enqueue_many('[{{"kind": "a"}}, {{"kind": "a", "max_attempts": {n}}}]')""", "job 1: max_attempts is {n}", "give 1 to 32767"),
        ("create_queue('q', max_attempts => {n})", "max_attempts is {n}", "give 1 to 32767"),
    ],
)  # fmt: skip
def test_a_number_that_no_column_holds_is_refused_by_name(
    ready: psycopg.Connection[Any], call: str, says: str, hint: str, number: int
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        ready.execute(f"SELECT samecommit.{call.format(n=number)}".encode())
    assert caught.value.sqlstate == "SC004"
    assert (caught.value.diag.message_primary, caught.value.diag.message_hint) == (says.format(n=number), hint)


_NAME = "give 1 to 200 characters, no control characters, no spaces at the ends"


@pytest.mark.parametrize(
    ("call", "says", "hint"),
    [
        ("enqueue('')", "kind ''", _NAME),
        ("enqueue('work ')", "kind 'work '", _NAME),
        ("enqueue('work', priority => 101)", "priority is 101", "give -100 to 100"),
        ("enqueue('work', priority => -101, unique_key => 'k')", "priority is -101", "give -100 to 100"),
        ("enqueue('work', max_attempts => 0)", "max_attempts is 0", "give 1 to 32767"),
        ("enqueue('work', payload_version => -1)", "payload_version is -1", "give 0 to 32767"),
        ("""enqueue_many('[{"kind": "a"}, {"kind": " a"}]')""", "job 1: kind ' a'", _NAME),
        ("""enqueue_many('[{"kind": "a"}, {"kind": "a", "priority": 101}]')""", "job 1: priority is 101", "give -100 to 100"),
        ("""enqueue_many('[{"kind": "", "unique_key": "k", "on_conflict": "replace"}]')""", "kind ''", _NAME),
        ("create_queue('q', max_attempts => 0)", "max_attempts is 0", "give 1 to 32767"),
    ],
)  # fmt: skip
def test_what_no_worker_could_run_is_refused_by_name(
    conn: psycopg.Connection[Any], call: str, says: str, hint: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT samecommit.{call}".encode())
    assert caught.value.sqlstate == "SC004"
    assert (caught.value.diag.message_primary, caught.value.diag.message_hint) == (says, hint)


def test_the_page_lists_the_sqlstates_that_are_raised_and_no_other() -> None:
    raised = {
        state
        for path in MIGRATIONS.glob("*.sql")
        for state in re.findall(r"'(SC\d{3})'", path.read_text(encoding="utf-8"))
    }
    listed = set(re.findall(r"^\| `(SC\d{3})` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == raised == {cause[0] for cause in CAUSES}


def test_the_contract_has_a_version(ready: psycopg.Connection[Any]) -> None:
    row = ready.execute("SELECT samecommit.contract_version()").fetchone()
    assert row == (1,)
    assert f"contract version is **{row[0]}**" in PAGE.read_text(encoding="utf-8")
