"""Every case and letter of `tests/cases.md` names a test that exists, or says why there is none."""

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LETTERS = {
    "B10": "abcd", "B11": "", "B12": "", "B13": "", "B14": "abcdef", "B15": "abcde", "B16": "abcdefg", "B17": "abcdef",
    "B18": "", "B19": "abcdefg", "B20": "", "B21": "abcdef", "B22": "abcdefg", "B23": "abcdefgh", "B25": "ab",
    "B27": "abcde", "B28": "",
}  # fmt: skip


@cache
def lines() -> dict[str, str]:
    rows = [line.split("|") for line in (TESTS / "cases.md").read_text(encoding="utf-8").splitlines() if "| B" in line]
    return {row[1].strip(): "|".join(row[3:]).strip() for row in rows}


@cache
def text_of_tests() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))


def test_every_letter_has_a_line() -> None:
    assert set(lines()) == {case + letter for case, letters in LETTERS.items() for letter in letters or [""]}


@pytest.mark.parametrize("case", lines())
def test_every_test_that_is_named_exists(case: str) -> None:
    answer = lines()[case]
    assert len(answer) > 20, "say which test, or why there is none"
    for name in re.findall(r"`(test_\w+)`", answer):
        assert f"def {name}(" in text_of_tests(), name


@pytest.mark.parametrize("case", lines())
def test_every_kind_of_the_storm_that_is_named_exists(case: str) -> None:
    kinds = "".join(path.read_text(encoding="utf-8") for path in (TESTS / "faults").glob("fates_of_*.py"))
    for said in re.findall(r"storm's ((?:\"[^\"]+\"(?: and )?)+)", lines()[case]):
        for kind in re.findall(r'"([^"]+)"', said):
            assert f'"{kind.removesuffix(" …")}' in kinds, kind
