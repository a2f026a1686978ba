"""Tries everything that somebody could do in an installation, and tells what was allowed."""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import errors as pg

from samecommit.storage.roles import ACCESS, Role

HOME = "samecommit"
Right = tuple[str, str, str]  # what, its name, the verb
VERBS = {
    "SELECT": "SELECT 1 FROM {0} LIMIT 0",
    "INSERT": "INSERT INTO {0} ({1}) SELECT NULL WHERE false",
    "UPDATE": "UPDATE {0} SET {1} = NULL WHERE false",
    "DELETE": "DELETE FROM {0} WHERE false",
    "TRUNCATE": "TRUNCATE {0}",
}
_CATALOGUE = """
    SELECT CASE WHEN c.relkind = 'v' THEN 'view' ELSE 'table' END, c.relname::text,
           (SELECT a.attname::text FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attidentity = '' LIMIT 1)
    FROM pg_class AS c WHERE c.relnamespace = 'samecommit'::regnamespace AND c.relkind IN ('r', 'p', 'v')
      AND NOT c.relispartition
    UNION ALL
    SELECT 'sequence', c.relname::text, NULL FROM pg_class AS c
    WHERE c.relnamespace = 'samecommit'::regnamespace AND c.relkind = 'S'
    UNION ALL
    SELECT 'function', p.proname::text,
           (SELECT coalesce(string_agg('NULL::' || format_type(t.type, NULL), ', ' ORDER BY t.n), '')
            FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, n))
    FROM pg_proc AS p WHERE p.pronamespace = 'samecommit'::regnamespace
"""


def catalogue(conn: psycopg.Connection[Any]) -> list[tuple[str, str, str]]:
    """Return what there is to try: (what, name, a column or the arguments)."""
    return conn.execute(_CATALOGUE.encode()).fetchall()


def everything(things: list[tuple[str, str, str]]) -> Iterator[tuple[Right, str]]:
    """Yield every right that could be had, with the statement that needs it."""
    for what, name, detail in things:
        place = f"{HOME}.{name}"
        if what == "function":
            yield (what, name, "EXECUTE"), f"SELECT {place}({detail})"
        elif what == "sequence":
            yield (what, name, "USAGE"), f"SELECT nextval('{place}')"
            yield (what, name, "SELECT"), f"SELECT last_value FROM {place}"
        elif what == "view":
            yield (what, name, "SELECT"), VERBS["SELECT"].format(place)
        else:
            for verb, text in VERBS.items():
                yield (what, name, verb), text.format(place, detail)


def allowed(conn: psycopg.Connection[Any], things: list[tuple[str, str, str]]) -> set[Right]:
    """Try everything on this connection, changing nothing, and return what was not refused for want of a right."""
    found: set[Right] = set()
    for right, text in everything(things):
        try:
            with conn.transaction(force_rollback=True):
                conn.execute(text.encode())
        except (pg.InsufficientPrivilege, pg.WrongObjectType):
            continue
        except psycopg.Error:
            pass  # it was let in, and has nothing to work on
        found.add(right)
    return found


def declared(role: Role, things: list[tuple[str, str, str]], partitioned: set[str]) -> set[Right]:
    """Return what the table of rights gives a role, with what it owns."""
    rights = {right for right, _ in everything(things)}
    if role == "owner":
        return rights
    found = {
        (what, name, verb)
        for what, grants in ACCESS.items()
        for name, roles in grants.items()
        for verb in roles.get(role, "").split(", ")
        if verb
    }
    if role == "maintainer":
        found |= {right for right in rights if right[0] == "table" and right[1] in partitioned}
    return found
