"""The pages build without a warning, and what they show as Python is Python."""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
PYTHON_BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    # A dead link, an unknown reference or a page in no table of contents is a warning.
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    built = subprocess.run(
        [*sphinx, "-d", tmp_path / "trees", ROOT / "docs", tmp_path / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "index.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_examples_are_python(page: Path) -> None:
    for block in PYTHON_BLOCK.finditer(page.read_text(encoding="utf-8")):
        ast.parse(textwrap.dedent(block.group(2)), page.name)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(page.name[:4]) for page in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
