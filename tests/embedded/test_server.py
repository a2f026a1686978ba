import fcntl
import os
import signal
import threading
from pathlib import Path

import psycopg
import pytest
from tests.embedded.places import PG15, is_quiet

from samecommit.embedded import EmbeddedServer, find_binaries
from samecommit.embedded.supervisor import open_lock
from samecommit.errors import EmbeddedError

FAST = {"fsync": "off"}


def query(server: EmbeddedServer, sql: str, database: str = "postgres") -> object:
    with psycopg.connect(server.dsn_for(database), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_it_says_how_it_is_reached(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what libpq would take from the environment for parts that a DSN leaves out
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    monkeypatch.setenv("PGUSER", "somebody")
    server = EmbeddedServer(data_dir, settings=FAST)
    assert "not started" in repr(server)
    with pytest.raises(EmbeddedError, match=r"call start\(\)"):
        _ = server.dsn
    with server:
        assert server.start() is server
        assert query(server, "SELECT current_user || '/' || current_database()") == "postgres/postgres"
        assert str(query(server, "SHOW server_version")).split()[0] == server.version
        assert (server.bin_dir / "postgres").exists()
        assert server.version in repr(server)
        query(server, 'CREATE DATABASE "we/ird? db"')
        assert query(server, "SELECT current_database()", "we/ird? db") == "we/ird? db"
    server.stop()
    assert is_quiet(data_dir)


@pytest.mark.parametrize("name", ["a,b c", "deep " * 20])
def test_any_directory_will_do(home: Path, name: str) -> None:
    with EmbeddedServer(home / name, settings=FAST) as server:
        sockets = Path(str(query(server, "SHOW unix_socket_directories")))
        assert len(str(sockets)) < 90
        # killed or restarted, the address stays
        server.restart("immediate")
        assert query(server, "SELECT 1") == 1
    assert not list(sockets.glob(".s.PGSQL*"))
    if sockets.parent != home / name:
        assert not sockets.exists()


def test_it_is_durable_unless_told_otherwise_and_counts_statements_where_it_can(home: Path) -> None:
    with EmbeddedServer(home / "data") as server:
        settings = "fsync", "synchronous_commit", "full_page_writes", "data_checksums"
        assert {name: query(server, f"SHOW {name}") for name in settings} == dict.fromkeys(settings, "on")
        if query(server, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'"):
            query(server, "CREATE EXTENSION pg_stat_statements")
            query(server, "SELECT 'counted'")
            assert query(server, "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'SELECT $1'") == 1
    with EmbeddedServer(home / "data", settings={"fsync": "off", "max_connections": "37"}) as server:
        assert query(server, "SHOW fsync") == "off"
        assert query(server, "SHOW max_connections") == "37"
        with pytest.raises(EmbeddedError, match=r"already runs with .*'37'.*, not with .*'38'"):
            EmbeddedServer(home / "data", settings={"max_connections": "38"}).start()
        with EmbeddedServer(home / "data", settings={"max_connections": "37"}) as other:
            assert other.server_pid == server.server_pid


def test_a_restart_keeps_the_data_and_the_address(data_dir: Path) -> None:
    with EmbeddedServer(data_dir, settings=FAST) as server:
        query(server, "CREATE TABLE kept AS SELECT 1")
        for mode in ("fast", "immediate"):
            former, dsn = server.server_pid, server.dsn
            server.restart(mode)
            assert (server.server_pid != former, server.dsn) == (True, dsn)
            assert query(server, "SELECT count(*) FROM kept") == 1
        os.kill(server.server_pid, signal.SIGTERM)


def test_a_setting_that_the_server_refuses_is_reported_with_its_words(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, settings={"max_connections": "many"})
    with pytest.raises(
        EmbeddedError, match=r'(?s)did not start; .*postgres\.log ends with:.*"max_connections": "many"'
    ):
        server.start()
    assert is_quiet(data_dir)
    with EmbeddedServer(data_dir) as repaired:
        assert query(repaired, "SELECT 1") == 1


@pytest.mark.parametrize("name", ["listen_addresses", "Port", "unix_socket_directories", "hba_file"])
def test_a_setting_that_would_open_the_server_is_refused(name: str) -> None:
    with pytest.raises(EmbeddedError, match="cannot be changed: the server trusts"):
        EmbeddedServer(settings={name: "x"})


@pytest.mark.parametrize("name", ["", "a b", "-c", "a=b"])
def test_what_is_no_setting_is_refused(name: str) -> None:
    with pytest.raises(EmbeddedError, match="is no server setting"):
        EmbeddedServer(settings={name: "x"})


def test_data_of_another_major_is_refused_before_anything_is_touched(home: Path) -> None:
    pgdata = home / "data" / "pgdata"
    pgdata.mkdir(parents=True)
    (home / "data" / "users.lock").touch()
    (pgdata / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=rf"holds data of PostgreSQL 12, and .* \(major {find_binaries().major}\)"):
        EmbeddedServer(home / "data").start()
    assert [path.name for path in pgdata.iterdir()] == ["PG_VERSION"]
    (pgdata / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedError, match="is damaged"):
        EmbeddedServer(home / "data").start()


@pytest.mark.pg15
@pytest.mark.skipif(not PG15.exists(), reason=f"no PostgreSQL 15 in {PG15}")
def test_the_data_decides_which_version_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = find_binaries()
    if newest.major == 15:
        pytest.skip("nothing newer than PostgreSQL 15 is installed")
    monkeypatch.setenv("SAMECOMMIT_PG_BIN", str(PG15))
    with EmbeddedServer(home / "data", settings=FAST) as server:
        assert server.version.startswith("15.")
    monkeypatch.setenv("SAMECOMMIT_PG_BIN", str(newest.bin_dir))
    with pytest.raises(EmbeddedError, match=rf"holds data of PostgreSQL 15, and .* \(major {newest.major}\)"):
        EmbeddedServer(home / "data", settings=FAST).start()
    monkeypatch.delenv("SAMECOMMIT_PG_BIN")
    with EmbeddedServer(home / "data", settings=FAST) as server:
        assert server.version.startswith("15.")


def test_a_directory_with_other_things_is_refused_and_left_as_it_is(home: Path) -> None:
    (home / "notes.txt").touch()
    with pytest.raises(EmbeddedError, match=r"holds other things, such as 'notes.txt'"):
        EmbeddedServer(home).start()
    assert home.stat().st_mode & 0o777 == 0o711
    assert [path.name for path in home.iterdir()] == ["notes.txt"]
    with pytest.raises(EmbeddedError, match="cannot be used as data_dir"):
        EmbeddedServer(home / "notes.txt").start()


def test_a_start_does_not_wait_for_ever(home: Path) -> None:
    data_dir = home / "data"
    data_dir.mkdir()
    users, starter = open_lock(data_dir / "users.lock"), open_lock(data_dir / "start.lock")
    fcntl.flock(starter, fcntl.LOCK_EX)
    with pytest.raises(EmbeddedError, match="another process is still starting"):
        EmbeddedServer(data_dir).start(timeout_seconds=0.1)
    fcntl.flock(users, fcntl.LOCK_EX)
    with pytest.raises(EmbeddedError, match="is still shutting down"):
        EmbeddedServer(data_dir).start(timeout_seconds=0.1)
    os.close(users)
    os.close(starter)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of fork, from Python 3.12 on
def test_a_forked_child_counts_as_a_user(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, settings=FAST).start()
    dsn, pid = server.dsn, server.server_pid
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # holds what it inherited until it is told to end
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    server.stop()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with EmbeddedServer(data_dir, settings=FAST) as again:
        assert again.server_pid == pid
        os.close(writing)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of fork, from Python 3.12 on
def test_a_child_that_stops_takes_nothing_from_its_parent(data_dir: Path) -> None:
    with EmbeddedServer(data_dir, settings=FAST) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with EmbeddedServer(data_dir, settings=FAST) as other:
            assert other.server_pid == server.server_pid
        assert query(server, "SELECT 1") == 1


def test_a_stopped_server_leaves_no_thread_and_no_descriptor(data_dir: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with EmbeddedServer(data_dir, settings=FAST):
        pass
    before = open_files(), threading.active_count()
    with EmbeddedServer(data_dir, settings=FAST):
        assert threading.active_count() == before[1] + 1
    assert (open_files(), threading.active_count()) == before
