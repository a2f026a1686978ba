import re

from tests.cli.conftest import Samecommit
from tests.support.jobs import Jobs

from samecommit.cli.sql import FUNCTIONS, VIEWS


def test_the_whole_contract_is_printed_with_its_comments(samecommit: Samecommit) -> None:
    told = samecommit("sql", "--json").data
    assert sorted(entry["name"] for entry in told["functions"]) == sorted(FUNCTIONS)
    assert sorted(entry["name"] for entry in told["views"]) == sorted(VIEWS)
    assert all(entry["comment"].startswith("-- ") for entry in told["functions"] if entry["name"] in ("enqueue", "why"))
    assert ':"schema"' not in samecommit("sql").out


def test_what_is_printed_is_what_is_installed(samecommit: Samecommit, jobs: Jobs) -> None:
    counted = "SELECT pronargs FROM pg_proc WHERE pronamespace = 'samecommit'::regnamespace AND proname = %s"
    for entry in samecommit("sql", "--json").data["functions"]:
        inside = re.search(r"\((.*?)\)\s*(?:RETURNS|$)", entry["declaration"], re.DOTALL)
        assert inside is not None, entry
        parts = [part for part in inside[1].split(",") if part.strip() and not part.strip().startswith("OUT ")]
        assert len(parts) == jobs.value(counted, entry["name"]), entry["declaration"]


def test_the_schema_is_written_as_asked(samecommit: Samecommit) -> None:
    assert '"my jobs".enqueue(' in samecommit("sql", "--schema", "my jobs").out
