"""A relay in a process of its own: ``python relay_process.py DSN SINK`` with the sink as a Python expression."""

import asyncio
import signal
import sys

from samecommit import App
from samecommit.outbox.sinks.nats import NatsStream
from samecommit.outbox.sinks.rabbitmq import RabbitMQ
from samecommit.outbox.sinks.redis import RedisStream

SINKS = {"RedisStream": RedisStream, "NatsStream": NatsStream, "RabbitMQ": RabbitMQ}


async def main() -> None:
    app = App(sys.argv[1])
    sink = eval(sys.argv[2], dict(SINKS))
    app.stream("there", sink, start="start", lease_seconds=1.0, send_seconds=0.5)
    relay = app.relay()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
    await relay.run()


if __name__ == "__main__":
    asyncio.run(main())
