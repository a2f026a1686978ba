"""What every session of a worker sets, so that neither the database's defaults nor statistics change what it does.

Plans: a statement prepared while a table is small keeps its plan when the table fills (measured: 1,000 µs a job instead
of 7). Every hot statement is an index walk, so the alternatives are switched off for these sessions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from samecommit.storage.query import quote_literal

PLAN_SETTINGS: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}

SAFETY_SETTINGS: Mapping[str, str] = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "search_path": "pg_catalog",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "client_encoding": "UTF8",
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "60s",
}

# by which the server notices, 20 s later, that a worker's host is gone: its sessions would stay for hours, one with the bell
ALIVE_SETTINGS: Mapping[str, str] = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}

# what a transaction cannot set for itself once it has begun, or what would be set for a pooler's connection
_NOT_LOCAL = frozenset(
    {"client_encoding", "default_transaction_isolation", "default_transaction_read_only", *ALIVE_SETTINGS}
)


def session_settings(*, durable: bool = True, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a worker's session; ``durable=False`` is for claims, whose fence makes a lost one harmless."""
    settings = {**PLAN_SETTINGS, **SAFETY_SETTINGS, **ALIVE_SETTINGS, **(extra or {})}
    if not durable:
        settings["synchronous_commit"] = "off"
    return settings


def as_startup_options(settings: Mapping[str, str]) -> str:
    """Write settings as libpq's ``options`` (``-c name=value``), spaces and backslashes escaped."""
    return " ".join(f"-c {name}={_escape(value)}" for name, value in settings.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def as_local_statement(settings: Mapping[str, str]) -> bytes:
    """Write settings as one statement that sets them for the open transaction only: behind a transaction pooler."""
    calls = [
        f"set_config({quote_literal(name)}, {quote_literal(value)}, true)"
        for name, value in settings.items()
        if name not in _NOT_LOCAL
    ]
    return ("SELECT " + ", ".join(calls)).encode()


def as_writer(dsn: str) -> dict[str, Any]:
    """Return what a connection asks for beside its DSN so that, of several hosts, it gets the one that takes writes."""
    return {} if "target_session_attrs" in conninfo_to_dict(dsn) else {"target_session_attrs": "read-write"}


def refuses_options(error: BaseException) -> bool:
    """Whether a connection was refused because a pooler takes no startup options."""
    return "unsupported startup parameter" in str(error)
