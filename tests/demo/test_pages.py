"""The pages about the demo show its code as it is."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src/samecommit/demo").glob("*.py")]
PAGES = ("docs/tutorials/first-run.md", "docs/explanation/what-the-demo-shows.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def indented(text: str) -> set[str]:
    return {textwrap.indent(text, " " * width) for width in (0, 4, 8, 12)}


@pytest.mark.parametrize("page", PAGES)
def test_code_on_the_pages_is_code_of_the_demo(page: str) -> None:
    for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        assert any(text in source for text in indented(block) for source in SOURCES), block
