"""An application that was used before a fork (a preloading web server) works in parent and children, over TLS too.

It holds no connection between two calls, so there is none to share; what a child must not do is end what the parent has.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from tests.faults.arena import ROLE
from tests.faults.cluster import DATABASE, machines
from tests.support.database import missing

from samecommit import App
from samecommit.testing import drain

# What a preloading server does: the application is imported and used, then children are forked and go on using it.
PRELOADED = """
import os, sys
import psycopg
from samecommit import App

app = App(sys.argv[1]) if len(sys.argv) > 1 else App.embedded()

@app.task()
def greet(name: str) -> str:
    return f"hello {name}"

app.migrate()

def enqueue(name):
    app.enqueue(greet.job(name))
    with psycopg.connect(app.dsn) as conn:
        greet.enqueue(conn, name)
        app.enqueue_many(conn, [greet.job(name), greet.job(name)])

enqueue("before the fork")
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        for _ in range(3):
            enqueue(f"child {number}")
        sys.exit(0)  # with all that runs at exit
    children.append(pid)
for _ in range(3):
    enqueue("parent")
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
enqueue("after")
with psycopg.connect(app.dsn) as conn:
    print(conn.execute("SELECT count(*) FROM samecommit.job").fetchone()[0])
app.close()
"""
JOBS = 4 * (1 + 3 * 3 + 3 + 1)


@pytest.fixture(scope="module")
def secure_dsn() -> Iterator[str]:
    """A migrated server that takes TLS alone, with a certificate that it signed itself and that the client checks."""
    if shutil.which("openssl") is None:
        missing("no openssl: install it")
    with machines("pg15") as made:  # the embedded one is built without TLS
        cluster = made.empty("tls")
        certificate, key = cluster.home / "server.crt", cluster.home / "server.key"
        command = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *command, *names], check=True, capture_output=True)
        for path in (certificate, key):
            shutil.copy(path, cluster.sockets)
            cluster.own(cluster.sockets / path.name)
        address = (
            f"127.{os.getpid() >> 16 & 127 | 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"  # nobody else's
        )
        files = {
            "ssl_cert_file": str(cluster.sockets / "server.crt"),
            "ssl_key_file": str(cluster.sockets / "server.key"),
        }
        cluster.create({"ssl": "on", "listen_addresses": address, **files})
        (cluster.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all 127.0.0.0/8 trust\n")
        cluster.start()
        cluster.install()
        where = f"host=localhost hostaddr={address} port=5432 user={ROLE} dbname={DATABASE}"
        yield f"{where} sslmode=verify-full sslrootcert={certificate}"


def test_an_application_that_was_used_before_a_fork_works_after_it_over_tls(secure_dsn: str) -> None:
    told = subprocess.run([sys.executable, "-c", PRELOADED, secure_dsn], capture_output=True, text=True, check=False)
    assert (told.stdout.strip(), told.stderr, told.returncode) == (str(JOBS), "", 0)
    app = App(secure_dsn)

    @app.task()
    def greet(name: str) -> str:
        return name

    drained = drain(app)  # a worker over TLS
    assert (drained.done, drained.ready) == (JOBS, 0)
    with psycopg.connect(secure_dsn) as conn:
        assert conn.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)


@pytest.mark.slow
def test_a_child_that_ends_leaves_its_parent_s_embedded_server_alone() -> None:
    told = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True, check=False)
    assert (told.stdout.strip(), told.stderr, told.returncode) == (str(JOBS), "", 0)
