"""A fresh directory for each test, used by the present account, by another one, and with another PostgreSQL."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.places import ACCOUNTS, SOURCES, Place, interpreter_for, is_quiet, processes_of, site_packages

from samecommit.embedded import EmbeddedServer

MEMORY = Path("/dev/shm")
# many servers are made and thrown away here: kept off the disk where there is room, they take half the time
PARENT = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1 << 30 else None


@pytest.fixture
def home() -> Iterator[Path]:
    """A short directory that every account may enter; pytest's own are private."""
    directory = Path(tempfile.mkdtemp(prefix="sce-", dir=PARENT))
    directory.chmod(0o711)
    yield directory
    assert is_quiet(directory), processes_of(directory)
    shutil.rmtree(directory)


@pytest.fixture(params=ACCOUNTS)
def place(home: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    account, binaries = request.param
    uid = None if account is None else pwd.getpwnam(account).pw_uid
    if uid is not None:
        os.chown(home, uid, -1)
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(home),
        "PYTHONPATH": os.pathsep.join(map(str, [*SOURCES, *site_packages()])),
    }
    if binaries is not None:
        environment["SAMECOMMIT_PG_BIN"] = str(binaries)
    made = Place(home=home, uid=uid, environment=environment, interpreter=interpreter_for(uid))
    yield made
    for user in made.users:
        user.kill()


@pytest.fixture(scope="session")
def templates() -> Iterator[Path]:
    """Data directories to copy, which takes a tenth of the time that a new one takes."""
    directory = Path(tempfile.mkdtemp(prefix="sct-", dir=PARENT))
    yield directory
    shutil.rmtree(directory)


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.fixture
def settled(place: Place, templates: Path) -> Place:
    """A place whose data directory exists."""
    template = templates / f"{place.uid}-{'SAMECOMMIT_PG_BIN' in place.environment}"
    if template.exists():
        copy(template, place.data_dir)
    else:
        place.user().leave()
        copy(place.data_dir, template)
    return place


@pytest.fixture
def data_dir(home: Path, templates: Path) -> Path:
    """A data directory that exists, for servers in this very process."""
    made = home / "data"
    template = templates / "present"
    if template.exists():
        copy(template, made)
    else:
        with EmbeddedServer(made, settings={"fsync": "off"}):
            pass
        copy(made, template)
    return made
