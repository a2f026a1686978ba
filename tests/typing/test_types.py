"""What mypy and pyright say about uses of the API, with every driver installed and with psycopg alone.

`refused.txt` is Python that must not pass: the lines that have an error are exactly those marked so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SITE = Path(pytest.__file__).parents[1]
BIN = Path(sys.executable).parent
ALONE = ("psycopg", "psycopg_pool", "psycopg_binary", "msgspec")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Lines = set[tuple[str, int]]


class Place:
    """A directory to check files in, with the packages that are installed there."""

    def __init__(self, home: Path, *, is_complete: bool) -> None:
        self.home, self.is_complete = home, is_complete
        self.packages = home / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        self.packages.mkdir(parents=True)
        for name in () if is_complete else ALONE:
            if (SITE / name).exists():
                (self.packages / name).symlink_to(SITE / name)

    def add(self, source: Path, name: str | None = None) -> Path:
        return Path(shutil.copy(source, self.home / (name or source.name)))

    def mypy(self, *files: Path) -> Lines:
        command: list[str | Path] = [
            BIN / "mypy",
            "--strict",
            "--disable-error-code=import-untyped",
            "--no-error-summary",
            "--follow-imports=silent",
            f"--cache-dir={self.home}/cache",
        ]
        paths = [str(ROOT / "src")]
        if not self.is_complete:
            command.append("--no-site-packages")
            paths.append(str(self.packages))
        said = subprocess.run(
            [*command, "--config-file=", *files],
            cwd=self.home,
            env={**os.environ, "MYPYPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not said.stderr, said.stderr
        return {(Path(m[1]).name, int(m[2])) for m in re.finditer(r"(?m)^(.+?):(\d+): error:", said.stdout)}

    def pyright(self, *files: Path) -> Lines:
        settings: dict[str, Any] = {
            "include": [str(path) for path in files],
            "extraPaths": [str(ROOT / "src")],
            "typeCheckingMode": "strict",
            "pythonVersion": f"3.{sys.version_info.minor}",
            "reportMissingTypeStubs": "none",
            # asyncpg has no types
            "reportMissingTypeArgument": "none",
            "reportUnknownParameterType": "none",
            "reportUnknownVariableType": "none",
            "reportUnknownMemberType": "none",
            "reportUnknownArgumentType": "none",
            "venvPath": str(ROOT if self.is_complete else self.home),
            "venv": ".venv" if self.is_complete else "venv",
        }
        (self.home / "pyrightconfig.json").write_text(json.dumps(settings))
        said = subprocess.run(
            [BIN / "pyright", "--outputjson", "-p", self.home],
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(said.stdout)
        assert found["summary"]["filesAnalyzed"] == len(files), said.stdout
        return {
            (Path(told["file"]).name, told["range"]["start"]["line"] + 1)
            for told in found["generalDiagnostics"]
            if told["severity"] == "error"
        }


@pytest.fixture(params=[True, False], ids=["every driver", "psycopg alone"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, is_complete=request.param)


@pytest.fixture(params=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest, place: Place) -> Any:
    return getattr(place, request.param)


def test_right_uses_are_accepted_and_wrong_ones_refused(place: Place, checker: Any) -> None:
    files = [place.add(HERE / "accepted.py"), refused := place.add(HERE / "refused.txt", "refused.py")]
    if place.is_complete:
        files.append(place.add(HERE / "accepted_everywhere.py"))
    lines = refused.read_text().splitlines()
    marked = {("refused.py", number) for number, line in enumerate(lines, 1) if line.endswith("# refused")}
    assert len(marked) > 20
    assert checker(*files) == marked


def test_the_second_environment_has_psycopg_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, is_complete=False)
    program = tmp_path / "imports.py"
    program.write_text("import psycopg\nimport sqlalchemy\nimport asyncpg\nimport django\n")
    for said in (place.mypy(program), place.pyright(program)):
        assert {("imports.py", 2), ("imports.py", 3), ("imports.py", 4)} <= said
        assert ("imports.py", 1) not in said or len(said) == 4  # pyright says that it is unused
