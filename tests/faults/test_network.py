"""A worker on another host, as far as the network is concerned: packets that vanish, and connections that are reset."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import ROLE
from tests.faults.cluster import DATABASE, machines
from tests.faults.crew import Crew, Member, crew, wait_for
from tests.faults.judging import attempts_of, conclude, drain, starts
from tests.faults.producer import enqueue
from tests.support.database import missing
from tests.support.history import History, Run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
# those that ask something all the time; the bell does only while its worker sleeps
SERVICES = {"claimer", "completer", "heartbeat", "listener", "chore"}


class Host:
    """A network of its own, joined to this one by a virtual cable. Its rules go with it."""

    def __init__(self, name: str, near: str, far: str) -> None:
        self.name, self.near, self.far = name, near, far
        self.command = ("ip", "netns", "exec", name)

    def rules(self, *rules: str) -> None:
        """Have these rules of iptables and no others."""
        for rule in ("-F", *rules):
            subprocess.run([*self.command, "iptables", "-w", *rule.split()], check=True, capture_output=True)

    def swallow(self) -> None:
        """Let every packet vanish, both ways."""
        self.rules("-A INPUT -j DROP", "-A OUTPUT -j DROP")

    def reset(self) -> None:
        """Answer whatever is sent with a reset."""
        self.rules("-A OUTPUT -p tcp -j REJECT --reject-with tcp-reset")


@contextmanager
def another_host() -> Iterator[Host]:
    """Have one; needs root, network namespaces and iptables."""
    number = os.getpid() % 16_000
    name, near, far = f"sc{number}", f"10.{213 + number // 8000}.{number % 256}", f"scn{number}"
    if os.geteuid() or not all(map(shutil.which, ("ip", "iptables"))):
        missing("a host of its own needs root, iproute2 and iptables")
    host = Host(name, f"{near}.1", f"{near}.2")
    try:
        for command in (
            f"ip netns add {name}", f"ip link add {far} type veth peer name inside netns {name}",
            f"ip addr add {host.near}/30 dev {far}", f"ip link set {far} up",
            f"ip -n {name} addr add {host.far}/30 dev inside", f"ip -n {name} link set inside up",
            f"ip -n {name} link set lo up",
        ):  # fmt: skip
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                missing(f"no network of its own: {command}: {done.stderr}")
        yield host
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def host() -> Iterator[Host]:
    """Where the worker runs."""
    with another_host() as made:
        yield made


@pytest.fixture
def near(host: Host, folder: Path) -> Iterator[tuple[str, Crew]]:
    """A server on this host, by its socket, and workers on the other."""
    with machines() as place:
        cluster = place.empty("one")
        cluster.create({"listen_addresses": host.near})
        with (cluster.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {host.far}/32 trust\n")
        cluster.start()
        dsn = cluster.install()
        address = f"postgresql://{ROLE}@{host.near}:5432/{DATABASE}?sslmode=disable&gssencmode=disable"
        config = {"lease_seconds": 40.0, "heartbeat_seconds": 2.0}
        with crew(address, folder, config) as workers:
            yield dsn, workers


def ended(dsn: str, folder: Path, workers: Crew) -> tuple[Run, float]:
    """End the run once the server has noticed which sessions are gone: the run, and how long that took, s."""
    drain(dsn, 30)
    workers.stop()
    began = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as conn:
        sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'samecommit %'"
        wait_for(lambda: not conn.execute(sessions).fetchall(), 40, "sessions without a worker to end")
    seconds = time.monotonic() - began
    return conclude(dsn, folder, workers), seconds


def told(member: Member, since: float) -> dict[str, float]:
    """When each service first said that something is wrong, s after that moment."""
    seen: dict[str, float] = {}
    for line in member.lines("trouble"):
        if line["at"] >= since:
            service = line["service"].split()[0].removesuffix("s")  # one chore, or the connection of all chores
            seen.setdefault(service, line["at"] - since)
    return seen


def test_every_half_open_connection_is_noticed_and_nothing_is_repeated(
    host: Host, near: tuple[str, Crew], folder: Path
) -> None:
    dsn, workers = near
    member = workers.start(within=host.command)
    member.wait_until("lease")
    enqueue(dsn, folder, "nap", 10, 1.0)
    member.wait_until("start", count=10)
    host.swallow()
    began = time.time()
    enqueue(dsn, folder, "nap", 10, name="meanwhile")
    wait_for(lambda: told(member, began).keys() >= SERVICES, 25, f"word from {SERVICES}")
    noticed = {name: round(seconds, 1) for name, seconds in told(member, began).items() if name in SERVICES}
    host.rules()
    healed = time.time()
    History(folder / "faults.jsonl").write("fault", kind="swallowed", is_down=True, at=began, until=healed)
    wait_for(lambda: len({x["key"] for x in member.lines("end") if x["key"].startswith("meanwhile")}) == 10, 30)
    back = max(x["at"] for x in member.lines("end")) - healed
    run, cleared = ended(dsn, folder, workers)
    print(f"noticed after {noticed} s; work went on {back:.1f} s after the packets; old sessions: {cleared:.1f} s more")
    assert max(noticed.values()) <= 15
    assert starts(run) == 20
    assert set(attempts_of(run).values()) == {0}


@pytest.mark.slow
def test_connections_that_are_reset_are_opened_again(host: Host, near: tuple[str, Crew], folder: Path) -> None:
    dsn, workers = near
    member = workers.start(within=host.command)
    member.wait_until("lease")
    enqueue(dsn, folder, "nap", 10, 0.5)
    member.wait_until("start", count=10)
    host.reset()
    began = time.time()
    wait_for(lambda: told(member, began).keys() >= {"claimer", "completer"}, 15)
    host.rules()
    healed = time.time()
    enqueue(dsn, folder, "nap", 10, name="after")
    wait_for(lambda: len([x for x in member.lines("end") if x["key"].startswith("after")]) == 10, 15)
    print(f"work went on {max(x['at'] for x in member.lines('end')) - healed:.1f} s after the resets")
    run, cleared = ended(dsn, folder, workers)
    print(f"the server ended the sessions left over {cleared:.1f} s later")
    assert starts(run) == 20
    assert set(attempts_of(run).values()) == {0}
