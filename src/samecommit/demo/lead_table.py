"""The application's own table, and the statements that the demo runs on it.

The statements are plain values, so that the same one runs on a blocking and on an asynchronous connection.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from samecommit.demo.intake import Lead

CREATE: LiteralString = """
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE IF NOT EXISTS {schema}.lead (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        file_row integer NOT NULL,
        email text NOT NULL UNIQUE,
        name text NOT NULL,
        company text NOT NULL,
        phone text NOT NULL,
        country text NOT NULL,
        message text NOT NULL,
        source text NOT NULL,
        segment text,
        label text,
        confidence double precision,
        crm_id bigint,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )"""

INSERT: LiteralString = """
    INSERT INTO {schema}.lead (file_row, email, name, company, phone, country, message, source)
    VALUES (%(row)s, %(email)s, %(name)s, %(company)s, %(phone)s, %(country)s, %(message)s, %(source)s)
    ON CONFLICT (email) DO NOTHING
    RETURNING id"""

READ: LiteralString = """
    SELECT email, name, company, phone, country, message
    FROM {schema}.lead
    WHERE id = %(id)s"""

ENRICH: LiteralString = """
    UPDATE {schema}.lead
    SET name = %(name)s, company = %(company)s, phone = %(phone)s, country = %(country)s, segment = %(segment)s
    WHERE id = %(id)s"""

CLASSIFY: LiteralString = """
    UPDATE {schema}.lead
    SET label = %(label)s, confidence = %(confidence)s
    WHERE id = %(id)s"""

DELIVER: LiteralString = """
    UPDATE {schema}.lead
    SET crm_id = %(crm_id)s
    WHERE id = %(id)s"""


class LeadTable:
    """The statements for the table in one schema."""

    def __init__(self, schema: str) -> None:
        name = sql.Identifier(schema)
        self.schema = schema
        self.create = sql.SQL(CREATE).format(schema=name)
        self.insert = sql.SQL(INSERT).format(schema=name)
        self.read = sql.SQL(READ).format(schema=name)
        self.enrich = sql.SQL(ENRICH).format(schema=name)
        self.classify = sql.SQL(CLASSIFY).format(schema=name)
        self.deliver = sql.SQL(DELIVER).format(schema=name)
        self.emails = sql.SQL("SELECT email FROM {schema}.lead").format(schema=name)
        self.count = sql.SQL("SELECT count(*), count(crm_id) FROM {schema}.lead").format(schema=name)
        self.audit = sql.SQL("SELECT id, email, crm_id FROM {schema}.lead ORDER BY id").format(schema=name)


def values(lead: Lead) -> dict[str, str | int]:
    """Return the lead as parameters of ``insert``."""
    return {
        "row": lead.row,
        "email": lead.email,
        "name": lead.name,
        "company": lead.company,
        "phone": lead.phone,
        "country": lead.country,
        "message": lead.message,
        "source": lead.source,
    }
