"""A process that uses an embedded server: ``a_user.py DIRECTORY [SETTINGS as JSON]``, leaves at the end of its input."""

import json
import sys

from samecommit.embedded import EmbeddedServer

with EmbeddedServer(sys.argv[1] or None, settings=json.loads((sys.argv[2:] or ["{}"])[0])) as server:
    print(
        json.dumps({"dsn": server.dsn, "server_pid": server.server_pid, "data_dir": str(server.data_dir)}), flush=True
    )
    sys.stdin.read()
