"""Leads that other systems hear of: lead.* goes to NATS JetStream and to Redis Streams, if and only if the lead was stored.

SAMECOMMIT_DSN=postgresql://localhost/leads python leads.py prepare
SAMECOMMIT_DSN=postgresql://localhost/leads python leads.py ada@example.com grace@example.com
SAMECOMMIT_DSN=postgresql://localhost/leads samecommit relay leads:app
"""

import asyncio
import dataclasses
import os
import sys
from typing import Any

import nats
import psycopg

from samecommit import App
from samecommit.outbox.sinks.nats import NatsStream
from samecommit.outbox.sinks.redis import RedisStream

NATS = os.environ.get("NATS_URL", "nats://localhost:4222")
REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379")

app = App(source="https://leads.example/")
app.stream("nats", NatsStream(NATS, "LEADS"), matches="lead.*", start="start")
app.stream("redis", RedisStream(REDIS, "leads", max_entries=100_000), matches="lead.*", start="start")


@app.event(type="lead.created", key="id")
@dataclasses.dataclass
class LeadCreated:
    id: int
    email: str


@app.event(type="lead.scored", key="id")
@dataclasses.dataclass
class LeadScored:
    id: int
    score: int


def create_lead(conn: psycopg.Connection[Any], email: str) -> int:
    with conn.transaction():
        row = conn.execute("INSERT INTO lead (email) VALUES (%s) RETURNING id", [email]).fetchone()
        assert row is not None
        app.emit(conn, LeadCreated(id=row[0], email=email))
    return int(row[0])


def score_lead(conn: psycopg.Connection[Any], lead_id: int, score: int) -> None:
    with conn.transaction():
        # the update locks the lead, so its events are told in the order in which its scores were written
        conn.execute("UPDATE lead SET score = %s WHERE id = %s", [score, lead_id])
        app.emit(conn, LeadScored(id=lead_id, score=score))


async def prepare() -> None:
    app.migrate()
    with psycopg.connect(app.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS lead (id serial PRIMARY KEY, email text NOT NULL, score int)")
    client = await nats.connect(NATS)
    await client.jetstream().add_stream(name="LEADS", subjects=["lead.>"])
    await client.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["prepare"]:
        asyncio.run(prepare())
    else:
        with psycopg.connect(app.dsn, autocommit=True) as conn:
            for number, email in enumerate(sys.argv[1:]):
                score_lead(conn, create_lead(conn, email), 50 + number)
