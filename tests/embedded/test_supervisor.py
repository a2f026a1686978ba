"""Whoever dies: the data is there, the server comes back for those who are left, and nothing stays behind."""

import os
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from tests.embedded.places import Place, User, also_on_15, is_quiet, kill, server_is_back

from samecommit.embedded import find_binaries
from samecommit.embedded.supervisor import IS_LINUX, postmaster_pid, ready_pid, wait_until

pytestmark = pytest.mark.skipif(not IS_LINUX, reason="looks into /proc")


def remember(user: User) -> None:
    user.query("CREATE TABLE kept AS SELECT 42 AS answer")


def remembers(user: User) -> bool:
    return bool(user.query("SELECT answer FROM kept") == 42)


def start_by_hand(place: Place, bin_dir: Path) -> subprocess.Popen[bytes]:
    elsewhere, owner = place.home / "elsewhere", place.pgdata.stat()
    elsewhere.mkdir()
    os.chown(elsewhere, owner.st_uid, owner.st_gid)
    command = [str(bin_dir / "postgres"), "-D", str(place.pgdata), "-k", str(elsewhere), "-h", ""]
    uid, gid = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (None, None)
    return subprocess.Popen(command, user=uid, group=gid, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@also_on_15
def test_a_server_ends_with_its_user_and_starts_again_on_the_same_data(settled: Place) -> None:
    user = settled.user()
    remember(user)
    user.leave()
    # leaving waits for the end, which was a clean one
    assert postmaster_pid(settled.pgdata) is None
    assert settled.log().rstrip().endswith("database system is shut down")
    assert remembers(settled.user())
    assert "not properly shut down" not in settled.log()


def test_a_server_stops_cleanly_when_its_only_user_is_killed(settled: Place) -> None:
    user = settled.user()
    user.kill()
    assert is_quiet(settled.home)
    assert settled.log().rstrip().endswith("database system is shut down")


@also_on_15
def test_a_server_that_is_killed_together_with_its_user_recovers(settled: Place) -> None:
    user = settled.user()
    remember(user)
    kill(user.up["server_pid"])
    user.kill()
    assert remembers(settled.user())
    assert "not properly shut down" in settled.log()


def test_a_server_that_is_killed_comes_back_though_a_busy_backend_is_left(settled: Place) -> None:
    user = settled.user()
    remember(user)
    busy = psycopg.connect(user.up["dsn"], autocommit=True)

    def be_busy() -> None:
        # computes without a pause: it does not notice that its server is gone, and holds the shared memory
        with suppress(psycopg.OperationalError):
            busy.execute("SELECT count(*) FROM generate_series(1, 1000000000000)")

    thread = threading.Thread(target=be_busy)
    thread.start()
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND pid <> pg_backend_pid()"
    assert wait_until(lambda: user.query(running) == 1, 10)
    kill(user.up["server_pid"])
    assert server_is_back(settled, user.up["server_pid"])
    thread.join(20)
    busy.close()
    assert not thread.is_alive()
    assert wait_until(lambda: ready_pid(settled.data_dir) is not None, 20)
    assert remembers(user)
    user.leave()
    assert is_quiet(settled.home)


def test_a_server_stays_until_its_last_user_leaves(settled: Place) -> None:
    first = settled.user()
    second = settled.user()
    assert second.up == first.up
    first.leave()
    assert second.query("SELECT 1") == 1
    assert ready_pid(settled.data_dir) == first.up["server_pid"]
    second.leave()
    assert is_quiet(settled.home)


def test_six_users_at_once_make_one_server(place: Place) -> None:
    users = [place.begin() for _ in range(6)]
    servers = {user.wait_until_up().up["server_pid"] for user in users}
    assert len(servers) == 1
    assert place.log().count("This user must also own the server process") == 1
    assert list(place.data_dir.glob("init.*")) == []


def test_a_user_that_is_killed_while_the_data_directory_is_made_is_no_loss(place: Place) -> None:
    user = place.begin()
    assert wait_until(lambda: any(place.data_dir.glob("init.*")), 20, pause=0.001)
    user.kill()
    assert place.user().query("SELECT count(*) FROM pg_database") == 3
    assert list(place.data_dir.glob("init.*")) == []


def test_a_half_made_data_directory_is_never_used(place: Place) -> None:
    stuck = place.home / "bin"
    stuck.mkdir()
    (stuck / "postgres").symlink_to(find_binaries().bin_dir / "postgres")
    (stuck / "initdb").write_text('#!/bin/sh\necho 18 > "${1#--pgdata=}/PG_VERSION"\nexec sleep 100\n')
    (stuck / "initdb").chmod(0o755)
    place.environment["SAMECOMMIT_PG_BIN"] = str(stuck)
    user = place.begin()
    assert wait_until(lambda: any(place.data_dir.glob("init.*/PG_VERSION")), 20)
    kill(place.supervisor_pid)
    user.kill()
    del place.environment["SAMECOMMIT_PG_BIN"]
    assert is_quiet(place.data_dir)
    assert place.user().query("SELECT count(*) FROM pg_database") == 3
    assert list(place.data_dir.glob("init.*")) == []


@also_on_15
def test_no_server_outlives_its_supervisor_and_its_user(settled: Place) -> None:
    user = settled.user()
    remember(user)
    kill(settled.supervisor_pid)
    user.kill()
    assert is_quiet(settled.home)
    assert remembers(settled.user())
    assert "not properly shut down" not in settled.log()


def test_a_supervisor_that_is_killed_is_replaced_while_users_are_left(settled: Place) -> None:
    user, former = settled.user(), settled.supervisor_pid
    remember(user)
    kill(former)
    assert server_is_back(settled, user.up["server_pid"])
    assert wait_until(lambda: ready_pid(settled.data_dir) is not None, 20)
    assert settled.supervisor_pid != former
    assert remembers(user)
    user.leave()
    assert is_quiet(settled.home)


def test_leaving_cleans_up_though_the_supervisor_was_just_killed(settled: Place) -> None:
    user = settled.user()
    kill(settled.supervisor_pid)
    user.leave()
    assert is_quiet(settled.home)


@pytest.mark.parametrize("kind", ["alive", "a zombie"])
def test_a_pid_file_that_names_a_stranger_is_no_obstacle(settled: Place, kind: str) -> None:
    """As after a reboot, or where nobody reaps: PostgreSQL takes any process of its account for its old self."""
    user = settled.user()
    postgres = Path(str(user.query("SELECT setting FROM pg_config() WHERE name = 'BINDIR'"))) / "postgres"
    kill(user.up["server_pid"])
    user.kill()
    assert is_quiet(settled.home)
    account = settled.pgdata.stat().st_uid if os.geteuid() == 0 else None
    command = ["sleep", "100"] if kind == "alive" else [str(postgres), "--version"]
    stranger = subprocess.Popen(command, user=account, cwd="/", stdout=subprocess.DEVNULL)
    try:
        state = "S" if kind == "alive" else "Z"
        assert wait_until(lambda: f") {state} " in Path(f"/proc/{stranger.pid}/stat").read_text(), 10)
        lines = [str(stranger.pid), str(settled.pgdata), "1", "5432", str(settled.data_dir / "s"), "", "0 0", "ready"]
        (settled.pgdata / "postmaster.pid").write_text("\n".join(lines))
        assert settled.user().up["server_pid"] != stranger.pid
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_of_somebody_else_on_the_same_data_is_left_alone(settled: Place) -> None:
    """One that was started by hand: it listens elsewhere, and ending it is not for us to decide."""
    user = settled.user()
    bin_dir = Path(str(user.query("SELECT setting FROM pg_config() WHERE name = 'BINDIR'")))
    user.leave()
    by_hand = start_by_hand(settled, bin_dir)
    try:
        assert wait_until(lambda: postmaster_pid(settled.pgdata) == by_hand.pid, 20)
        refused = settled.begin()
        _, problem = refused.process.communicate(timeout=60)
        assert f"another server (pid {by_hand.pid}) runs in" in problem
        assert by_hand.poll() is None
    finally:
        by_hand.terminate()
        by_hand.wait(20)


def test_a_temporary_directory_goes_with_its_user(place: Place) -> None:
    leaver, victim = place.begin("").wait_until_up(), place.begin("").wait_until_up()
    directories = [Path(user.up["data_dir"]) for user in (leaver, victim)]
    assert directories[0] != directories[1]
    leaver.leave()
    assert not directories[0].exists()
    assert directories[1].exists()
    victim.kill()
    assert wait_until(lambda: not directories[1].exists(), 20)
    assert is_quiet(directories[1])


def test_a_server_listens_on_its_private_socket_only(settled: Place) -> None:
    user = settled.user()
    assert user.query("SHOW listen_addresses") == ""
    directory = Path(str(user.query("SHOW unix_socket_directories")))
    assert directory.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(directory / ".s.PGSQL.5432"))
