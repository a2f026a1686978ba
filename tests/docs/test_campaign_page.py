"""The page on the fault campaign shows the committed results, with the rule of three beside each zero."""

import json
from pathlib import Path
from typing import Any

from tests.faults.storm import campaign

PAGE = Path(__file__).parents[2] / "docs/operations/fault-campaign.md"
RESULT = PAGE.with_suffix(".json")
BEGIN = "<!-- campaign: begin (made by tests/docs/test_campaign_page.py from fault-campaign.json) -->"
END = "<!-- campaign: end -->"
DEPLOYS = PAGE.with_name("deploys.json")
BEGIN_DEPLOYS = "<!-- deploys: begin (made by tests/docs/test_campaign_page.py from deploys.json) -->"
END_DEPLOYS = "<!-- deploys: end -->"
OF_JOBS = {"lost", "unexpected", "phantom", "ended twice", "two jobs for a key", "early start", "attempts wrong"}


def bound(n: int) -> str:
    """The 95 % upper bound of a rate of which zero were seen in n."""
    return f"{300 / n:.2g} %" if n > 3 else "-"


def tables(result: dict[str, Any]) -> str:
    plan, jobs, faults = result["plan"], result["jobs"], result["faults"]
    head = (
        f"Seed {result['seed']}, commit `{result['commit'][:12]}`, {result['cores']} cores: {jobs:,} jobs, "
        f"{faults:,} faults of {len(result['kinds'])} kinds in {plan['seconds'] / 60:.0f} minutes, "
        f"{plan['workers']} workers, lease {plan['lease']:g} s."
    )
    text = [head, "", "| what must not happen | seen | trials | at 95 % below |", "|---|---|---|---|"]
    for name, count in result["zeros"].items():
        trials, what = (jobs, "jobs") if name in OF_JOBS else (faults, "faults")
        text.append(f"| {name} | {count} | {trials:,} {what} | {'-' if count else bound(trials)} |")
    text += ["", "| recovery, seconds | n | median | 95 % | worst |", "|---|---|---|---|---|"]
    for name, spread in result["recovery"].items():
        shown = " | ".join(f"{spread[part]:.2f}" if part in spread else "-" for part in ("median", "p95", "worst"))
        text.append(f"| {name} | {spread.get('n', '-')} | {shown} |")
    if result["wrong"]:
        text += ["", "Short of what was asked for:", "", *(f"- {one}" for one in result["wrong"])]
    text += ["", "| kind of fault | injected | seen | a harm at 95 % below |", "|---|---|---|---|"]
    for name, kind in sorted(result["kinds"].items()):
        text.append(f"| {name} | {kind['injected']} | {kind['seen']} | {bound(kind['injected'])} |")
    return "\n" + "\n".join(text) + "\n\n"


def deploys(result: dict[str, Any]) -> str:
    count, spread = result["deploys"], result["seconds"]
    head = (
        f"Seed {result['seed']}, commit `{result['commit'][:12]}`, {result['cores']} cores: {count:,} workers were told to "
        f"stop, {result['told twice']:,} of them twice; {result['jobs']:,} jobs, {result['given back']:,} given back."
    )
    text = [head, "", "| what must not happen | seen | trials | at 95 % below |", "|---|---|---|---|"]
    text += [
        f"| {name} | {result[name]} | {count:,} stops | {'-' if result[name] else bound(count)} |"
        for name in ("attempts spent", "never returned")
    ]
    text += ["", "| seconds | n | median | 95 % | worst |", "|---|---|---|---|---|"]
    shown = " | ".join(f"{spread[part]:.2f}" for part in ("median", "p95", "worst"))
    text.append(f"| from the signal to the end of the process | {spread['n']:,} | {shown} |")
    return "\n" + "\n".join(text) + "\n\n"


def filled(page: str) -> str:
    made = ((BEGIN, tables(read(RESULT)), END), (BEGIN_DEPLOYS, deploys(read(DEPLOYS)), END_DEPLOYS))
    for begin, text, end in made:
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
    return page


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_the_page_shows_the_committed_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "run: python -m tests.docs.test_campaign_page"


def test_a_thousand_stops_returned_and_spent_nothing() -> None:
    result = read(DEPLOYS)
    assert result["deploys"] == result["seconds"]["n"] >= 1000
    assert result["attempts spent"] == result["never returned"] == 0
    assert result["told twice"] > 300


def test_recovery_is_as_quick_as_the_page_on_failure_modes_says() -> None:
    recovery, plan = read(RESULT)["recovery"], read(RESULT)["plan"]
    assert recovery["back at 80 % of the undisturbed rate"]["worst"] <= 60
    first = recovery["first claim after the server was back"]
    assert first["median"] <= 2 and first["worst"] <= 5
    assert all(recovery[f"silent {link} noticed"]["worst"] <= 15 for link in ("claim", "finish", "heartbeat", "listen"))
    lease_and_round = plan["lease"] + plan["reap"] + 1
    assert recovery["jobs taken from a killed worker"]["worst"] <= lease_and_round
    assert recovery["a killed worker's job started elsewhere"]["worst"] <= lease_and_round


def test_nothing_that_must_not_happen_happened_and_every_kind_was_there() -> None:
    result = read(RESULT)
    assert result["wrong"] == []
    assert not any(result["zeros"].values())
    assert set(result["kinds"]) == set(campaign(0).faults)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")))
