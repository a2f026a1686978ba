"""Two receivers: from NATS each lead is welcomed once, from Redis the newest score of each lead is kept.

A transport may bring a message twice, and later ones before earlier ones. The inbox notes each message in the transaction
of its effects, so a repeat changes nothing; only then is the message acknowledged.

RECEIVER_DSN=postgresql://localhost/marketing python receiver.py
"""

import asyncio
import json
import os
from typing import Any

import nats
import nats.errors
import psycopg
import redis.asyncio
import redis.exceptions

from samecommit import App
from samecommit.outbox.inbox import Inbox, Message

DSN = os.environ.get("RECEIVER_DSN", "postgresql://localhost/marketing")
NATS = os.environ.get("NATS_URL", "nats://localhost:4222")
REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379")
WAIT_SECONDS = 1.0

welcomes, scores = Inbox("welcomes"), Inbox("scores")


def prepare() -> None:
    App(DSN).migrate()  # the inbox's tables
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS welcome (lead_id int NOT NULL, email text NOT NULL)")
        conn.execute("CREATE TABLE IF NOT EXISTS score (lead_id int PRIMARY KEY, score int NOT NULL)")


async def welcome_from_nats(conn: psycopg.AsyncConnection[Any], client: Any) -> int:
    """Take what is there; return how many messages came."""
    reader = await client.jetstream().pull_subscribe("lead.created", durable="welcomes", stream="LEADS")
    try:
        messages = await reader.fetch(100, timeout=WAIT_SECONDS)
    except nats.errors.TimeoutError:
        return 0
    for message in messages:
        lead = json.loads(message.data)
        async with conn.transaction():
            if await welcomes.once(conn, Message.of(message.headers)):
                await conn.execute("INSERT INTO welcome VALUES (%s, %s)", [lead["id"], lead["email"]])
        await message.ack()  # after the commit
    return len(messages)


async def scores_from_redis(conn: psycopg.AsyncConnection[Any], client: redis.asyncio.Redis) -> int:
    """Take what is there; return how many messages came."""
    answer: Any = await client.xreadgroup("scores", "one", {"leads": ">"}, count=100, block=int(WAIT_SECONDS * 1000))
    entries = [entry for _, entries in answer for entry in entries]
    for number, fields in entries:
        attributes = {name.decode(): value.decode() for name, value in fields.items()}
        if attributes["ce_type"] == "lead.scored":
            lead = json.loads(attributes["data"])
            async with conn.transaction():
                if await scores.latest(conn, Message.of(attributes)):
                    await conn.execute(
                        "INSERT INTO score VALUES (%s, %s) ON CONFLICT (lead_id) DO UPDATE SET score = excluded.score",
                        [lead["id"], lead["score"]],
                    )
        await client.xack("leads", "scores", number)  # after the commit
    return len(entries)


async def make_group(client: redis.asyncio.Redis) -> None:
    try:
        await client.xgroup_create("leads", "scores", id="0", mkstream=True)
    except redis.exceptions.ResponseError:
        pass  # it is there


async def receive(turns: int | None = None) -> None:
    """Receive for ever, or for so many turns."""
    prepare()
    stream = await nats.connect(NATS)
    client = redis.asyncio.Redis.from_url(REDIS)
    async with client, await psycopg.AsyncConnection.connect(DSN, autocommit=True) as conn:
        await make_group(client)
        while turns is None or (turns := turns - 1) >= 0:
            await welcome_from_nats(conn, stream)
            await scores_from_redis(conn, client)
    await stream.close()


if __name__ == "__main__":
    asyncio.run(receive())
