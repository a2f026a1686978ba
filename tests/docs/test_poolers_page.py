"""The page on poolers lists what needs a session: what the tests that are skipped behind a pooler are marked with."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations/poolers.md").read_text(encoding="utf-8")


def test_what_needs_a_session_is_on_the_page_with_the_number_of_its_tests() -> None:
    marked: Counter[str] = Counter()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        marked.update(_marks(ast.parse(path.read_text(encoding="utf-8"))))
    assert marked
    listed = PAGE.partition("## What needs a session\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in listed.splitlines() if line.startswith("| ")][1:]
    assert {row[1].strip(): int(row[3]) for row in rows} == dict(marked)


def _marks(module: ast.Module) -> Iterator[str]:
    """What each test needs a session for: by its own mark or a parameter's, else by that of its module."""
    of_module = [_named(node) for node in module.body if isinstance(node, ast.Assign)]
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [name for decorator in node.decorator_list for name in _named(decorator)]
            yield from own or [name for names in of_module for name in names]


def _named(node: ast.AST) -> list[str]:
    return [
        str(call.args[0].value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "session"
        and ast.unparse(call.func.value).endswith("mark")
        and isinstance(call.args[0], ast.Constant)
    ]
