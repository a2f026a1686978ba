"""Kafka's protocol: as Tansu speaks it, or a real cluster at ``SAMECOMMIT_TEST_KAFKA``. Tansu is not Apache Kafka.

Brokers tell clients where they are, so Tansu is started anew for each test and told to name the proxy. It forgets everything
at its end. A real cluster has no proxy before it, so the tests that need one skip.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.sinks.broker import Broker, Got, texts
from tests.sinks.proxy import Proxy
from tests.sinks.servers import Server, tansu_server

from samecommit.outbox.sinks.kafka import KafkaTopic

_PARTITIONS = 3
_REAL = os.environ.get("SAMECOMMIT_TEST_KAFKA")


class KafkaBroker(Broker):
    is_transactional = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: Server | None = None
        self.name = f"t{secrets.token_hex(6)}"
        self.proxy = Proxy(0)

    @property
    def _direct(self) -> str:
        return _REAL or f"127.0.0.1:{self.proxy.port}"

    async def open(self) -> None:
        if _REAL is None:
            await self.proxy.open()
            self._process = tansu_server(self._directory, self.proxy.port)
            self._process.start()
            self.proxy.target = self._process.port
        await asyncio.to_thread(self._make_topic)

    def _make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._direct, "log_level": 2})
        for made in admin.create_topics([NewTopic(self.name, _PARTITIONS, 1)]).values():
            made.result(30)

    async def make(self) -> None:
        pass

    async def close(self) -> None:
        if self._process is not None:
            await super().close()
            self._process.kill()

    def sink(self) -> KafkaTopic:
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "fetch.wait.max.ms": 10}
        return KafkaTopic(
            self._direct,
            self.name,
            transactional=self.is_transactional,
            timeout_seconds=2.0,
            settle_seconds=2.0,
            config=quick,
        )

    async def received(self) -> list[Got]:
        self.heal()
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[Got]:
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._direct,
                "group.id": f"read {self.name}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "log_level": 2,
            }
        )
        places = [confluent_kafka.TopicPartition(self.name, number, 0) for number in range(_PARTITIONS)]
        ends = [reader.get_watermark_offsets(place, timeout=5.0)[1] for place in places]
        reader.assign([place for place, end in zip(places, ends, strict=True) if end])
        found: list[Any] = []
        while any(at.offset < end for at, end in zip(reader.position(places), ends, strict=True) if end):
            found += [message for message in reader.consume(500, 0.02) if message.error() is None]
        reader.close()
        return [_got(m) for m in sorted(found, key=lambda m: (m.timestamp()[1], m.partition(), m.offset()))]

    def refuse(self) -> None:
        self._needs_proxy()
        super().refuse()

    def slow(self, seconds: float) -> None:
        self._needs_proxy()
        super().slow(seconds)

    def lose_answer(self, marker: str) -> None:
        self._needs_proxy()
        super().lose_answer(marker)

    def cut_in(self, marker: str) -> None:
        self._needs_proxy()
        super().cut_in(marker)

    def restart(self) -> None:
        pytest.skip("Tansu keeps everything in memory, and a real cluster is not ours to end")

    def _needs_proxy(self) -> None:
        if _REAL is not None:
            pytest.skip("a real cluster is not made to fail")


class TransactionalKafkaBroker(KafkaBroker):
    is_transactional = True


def _got(message: Any) -> Got:
    headers = texts(dict(message.headers()))
    attributes = {name[3:]: value for name, value in headers.items() if name.startswith("ce_")}
    attributes["datacontenttype"] = headers["content-type"]
    key = message.key()
    return Got(
        id=attributes["id"],
        key=None if key is None else key.decode(),
        data=message.value() or b"",
        attributes=attributes,
    )
