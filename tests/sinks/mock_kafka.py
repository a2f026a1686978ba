"""The mock cluster of librdkafka, which speaks Kafka's protocol from inside the client library. It is not Apache Kafka.

It keeps what is produced in memory, knows idempotent producers and transactions as far as a client can see them, and hides
nothing of an aborted transaction.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_POINTER = ctypes.c_void_p
_RPC_PRODUCE = 0
MSG_SIZE_TOO_LARGE, NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED = 10, 19, 29


def _library() -> ctypes.CDLL:
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
    lib = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(lib, name).restype = _POINTER
    lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    lib.rd_kafka_new.argtypes = [ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_size_t]
    lib.rd_kafka_mock_cluster_new.argtypes = [_POINTER, ctypes.c_int]
    for name in ("rd_kafka_mock_cluster_bootstraps", "rd_kafka_mock_cluster_destroy", "rd_kafka_destroy"):
        getattr(lib, name).argtypes = [_POINTER]
    lib.rd_kafka_mock_topic_create.argtypes = [_POINTER, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    for name in ("rd_kafka_mock_broker_set_down", "rd_kafka_mock_broker_set_up"):
        getattr(lib, name).argtypes = [_POINTER, ctypes.c_int32]
    lib.rd_kafka_mock_broker_set_rtt.argtypes = [_POINTER, ctypes.c_int32, ctypes.c_int]
    lib.rd_kafka_mock_push_request_errors_array.argtypes = [
        _POINTER,
        ctypes.c_int16,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int),
    ]
    return lib


class MockKafka:
    """A cluster of one broker, and its faults."""

    def __init__(self) -> None:
        self._lib = _library()
        said = ctypes.create_string_buffer(256)
        self._owner = self._lib.rd_kafka_new(0, self._lib.rd_kafka_conf_new(), said, 256)
        assert self._owner, said.value
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._owner, 1)
        self.servers = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def stop(self) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._owner)

    def make_topic(self, name: str, partitions: int) -> None:
        assert self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0

    def go_down(self) -> None:
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def come_up(self) -> None:
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def set_delay(self, seconds: float) -> None:
        """Answer everything later by so much; it is done at once."""
        self._lib.rd_kafka_mock_broker_set_rtt(self._cluster, 1, int(seconds * 1000))

    def fail_produce(self, *codes: int) -> None:
        """Answer the next requests to produce with these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._lib.rd_kafka_mock_push_request_errors_array(self._cluster, _RPC_PRODUCE, len(codes), array)
