"""The least of the Kafka protocol a load client needs, by struct over a blocking socket: any broker's, any version's.

It builds a record batch once and sends it again and again, and reads answers into a buffer it uses again, so that what
is measured is the broker. Versions: ApiVersions 0, Metadata 4, Produce 3-8, Fetch 4-11, the newest that both ends have.
It shares no code with klog: a wrong idea of the format shows as an error, not as agreement. A connection through a
`Door` is encrypted and logged in.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import crc32c

from bench.doors import Door, LoginRefused, log_in

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
NEWEST = {PRODUCE: 8, FETCH: 11, METADATA: 4}
"""Metadata 4 is the first with the flag to create a missing topic; what came later than these is of no use here."""

CLIENT_ID = b"bench"
ANSWER_TIMEOUT_S = 60.0

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
"""base offset, length after this field, leader epoch, magic, CRC-32C from attributes on, attributes, last offset delta,
first and last timestamp, producer id, producer epoch, first sequence number, count: 61 bytes."""
assert BATCH_HEADER.size == 61
CRC_FROM = 21
BATCH_PREFIX_BYTES = 12
"""Base offset and length: what the length does not count."""


class NoAnswer(Exception):
    """The broker did not do what was asked within the time, or closed the connection."""


class Refused(Exception):
    """The broker answered with an error code of the protocol."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


def _varint(value: int) -> bytes:
    """Zigzag, as RecordBatch v2 has it."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def build_batch(count: int, value_bytes: int) -> bytes:
    """A RecordBatch v2 of `count` keyless records with values of `value_bytes` bytes each, stamped now, as they are."""
    now_ms = int(time.time() * 1000)
    value = b"v" * value_bytes
    records = bytearray()
    for delta in range(count):
        body = b"\0\0" + _varint(delta) + _varint(-1) + _varint(value_bytes) + value + b"\0"
        records += _varint(len(body)) + body
    length = BATCH_HEADER.size - BATCH_PREFIX_BYTES + len(records)
    batch = bytearray(BATCH_HEADER.pack(0, length, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


class Skimmed(NamedTuple):
    """What one answer held: its bytes, its whole batches' messages, where the next fetch starts (None: nothing)."""

    answer_bytes: int
    messages: int
    next_offset: int | None


class Connection:
    """One blocking connection. Not thread-safe."""

    def __init__(self, to: int | Door, timeout_s: float = ANSWER_TIMEOUT_S, receive_bytes: int = 4 << 20) -> None:
        """``to``: a port, or an encrypted one."""
        port = to if isinstance(to, int) else to.port
        self._buffer = memoryview(bytearray(receive_bytes))
        self._correlation = 0
        self._versions: dict[int, int] = {}
        self._drop_flags: int = socket.MSG_TRUNC | socket.MSG_WAITALL
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(to, Door):
                self._socket = to.context().wrap_socket(self._socket, server_hostname="127.0.0.1")
                self._drop_flags = 0  # what is dropped must be decrypted all the same
        except OSError as error:
            raise NoAnswer(f"port {port}: {error}") from None
        if isinstance(to, Door):
            try:
                log_in(self._ask)
            except LoginRefused as error:
                raise NoAnswer(f"port {port}: {error}") from None

    def _ask(self, key: int, version: int, body: bytes) -> memoryview:
        self.send(self.frame(key, version, body))
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, frame: bytes | memoryview) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise NoAnswer(f"while sending: {error}") from None

    def receive(self) -> memoryview:
        """The next answer after its length, valid until the next call."""
        size = int.from_bytes(self._receive_exactly(4), "big")
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(2 * size))
        return self._receive_exactly(size)

    def receive_some(self) -> memoryview:
        """Whatever bytes come next, at least one, valid until the next call."""
        try:
            got = self._socket.recv_into(self._buffer)
        except OSError as error:
            raise NoAnswer(f"while receiving: {error}") from None
        if got == 0:
            raise NoAnswer("the broker closed the connection")
        return self._buffer[:got]

    def _receive_exactly(self, size: int) -> memoryview:
        got = 0
        try:
            while got < size:
                more = self._socket.recv_into(self._buffer[got:size])
                if more == 0:
                    raise NoAnswer("the broker closed the connection")
                got += more
        except OSError as error:
            raise NoAnswer(f"while receiving: {error}") from None
        return self._buffer[:size]

    def frame(self, key: int, version: int, body: bytes) -> bytes:
        """A whole request, length in front; numbered in the order of making."""
        self._correlation += 1
        head = struct.pack(">hhi", key, version, self._correlation) + _string(CLIENT_ID)
        return struct.pack(">i", len(head) + len(body)) + head + body

    def version(self, key: int) -> int:
        """The newest version of a request that both ends have."""
        if not self._versions:
            self.send(self.frame(API_VERSIONS, 0, b""))
            answer = self.receive()
            error, count = struct.unpack_from(">hi", answer, 4)
            if error:
                raise Refused("ApiVersions", error)
            for index in range(count):
                served, _, newest = struct.unpack_from(">hhh", answer, 10 + 6 * index)
                self._versions[served] = newest
        return min(self._versions[key], NEWEST[key])

    # --- Metadata ---

    def create_by_metadata(self, topic: str) -> int:
        """Asks for a topic, which creates it where the broker does so; the topic's error code, 0 when it is there."""
        body = struct.pack(">i", 1) + _string(topic.encode()) + b"\1"
        self.send(self.frame(METADATA, 4, body))
        answer = bytes(self.receive())
        position = 8  # correlation id, throttle time
        (brokers,) = struct.unpack_from(">i", answer, position)
        position += 4
        for _ in range(brokers):
            position += 4
            position = _after_string(answer, position) + 4  # host, port
            position = _after_string(answer, position)  # rack
        position = _after_string(answer, position) + 4 + 4  # cluster id, controller, count of topics
        return int(struct.unpack_from(">h", answer, position)[0])

    # --- Produce ---

    def produce_frame(self, topic: str, partitions: list[tuple[int, bytes]], acks: int = -1) -> bytes:
        """One request with one batch for each of the partitions given."""
        body = bytearray(struct.pack(">hhi", -1, acks, 30_000))
        body += struct.pack(">i", 1) + _string(topic.encode()) + struct.pack(">i", len(partitions))
        for partition, batch in partitions:
            body += struct.pack(">ii", partition, len(batch)) + batch
        return self.frame(PRODUCE, self.version(PRODUCE), bytes(body))

    def produce_answer(self) -> None:
        """Takes the next answer to a Produce; raises Refused on the first partition with an error."""
        answer = self.receive()
        version = self.version(PRODUCE)
        (name_bytes,) = struct.unpack_from(">h", answer, 8)
        position = 10 + name_bytes
        (partitions,) = struct.unpack_from(">i", answer, position)
        position += 4
        for _ in range(partitions):
            partition, error = struct.unpack_from(">ih", answer, position)
            if error:
                raise Refused(f"produce to partition {partition}", error)
            position += 22 + (8 if version >= 5 else 0)
            if version >= 8:
                position += 4 + 2  # no record errors, no message, where there is no error

    # --- Fetch ---

    def fetch_frame(self, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int = 500) -> bytes:
        version = self.version(FETCH)
        body = bytearray(struct.pack(">iiiib", -1, wait_ms, 1, 50 << 20, 0))
        if version >= 7:
            body += struct.pack(">ii", 0, -1)  # no fetch session
        one = struct.pack(">i", 1)
        body += one + _string(topic.encode()) + one + struct.pack(">i", partition)
        if version >= 9:
            body += struct.pack(">i", -1)  # no opinion of the leader's epoch
        body += struct.pack(">q", offset)
        if version >= 5:
            body += struct.pack(">q", -1)  # no follower, no log start
        body += struct.pack(">i", max_bytes)
        if version >= 7:
            body += struct.pack(">i", 0)  # no forgotten topics
        if version >= 11:
            body += _string(b"")  # no rack
        return self.frame(FETCH, version, bytes(body))

    def skim_fetch_answer(self, topic: str) -> Skimmed:
        """Takes the next answer to a Fetch of one partition whose batches are all of one size, and drops its records.

        Only the first and the last whole batch's headers are read; everything between is thrown away by the kernel
        (MSG_TRUNC) and never copied here, where it is not encrypted. A last batch that is not like the first one raises
        Refused.
        """
        version = self.version(FETCH)
        head_bytes = 8 + (6 if version >= 7 else 0) + 4 + 2 + len(topic.encode()) + 4
        error_at = head_bytes + 4
        head_bytes += 4 + 2 + 8 + 8 + (8 if version >= 5 else 0) + 4 + (4 if version >= 11 else 0) + 4
        head = self._receive_exactly(4 + head_bytes)
        (size,) = struct.unpack_from(">i", head, 0)
        if version >= 7 and (error := struct.unpack_from(">h", head, 12)[0]):
            raise Refused("fetch", error)
        if error := struct.unpack_from(">h", head, 4 + error_at)[0]:
            raise Refused(f"fetch of {topic}", error)
        (record_bytes,) = struct.unpack_from(">i", head, head_bytes)
        if record_bytes < BATCH_HEADER.size:
            self._discard(size - head_bytes)
            return Skimmed(size, 0, None)
        first = BATCH_HEADER.unpack(self._receive_exactly(BATCH_HEADER.size))
        batch_bytes = BATCH_PREFIX_BYTES + first[1]
        whole = record_bytes // batch_bytes
        if whole == 0:  # cut off by max_bytes
            self._discard(size - head_bytes - BATCH_HEADER.size)
            return Skimmed(size, 0, None)
        last = first
        if whole > 1:
            self._discard((whole - 1) * batch_bytes - BATCH_HEADER.size)
            last = BATCH_HEADER.unpack(self._receive_exactly(BATCH_HEADER.size))
        self._discard(size - head_bytes - (whole - 1) * batch_bytes - BATCH_HEADER.size)
        if last[1] != first[1] or last[12] != first[12]:
            raise Refused(f"fetch of {topic}: batches of more than one size", -1)
        return Skimmed(size, whole * first[12], last[0] + last[6] + 1)

    def _discard(self, size: int) -> None:
        try:
            while size > 0:
                window = self._buffer[: min(size, len(self._buffer))]
                dropped = self._socket.recv_into(window, len(window), self._drop_flags)
                if dropped == 0:
                    raise NoAnswer("the broker closed the connection")
                size -= dropped
        except OSError as error:
            raise NoAnswer(f"while receiving: {error}") from None


def _after_string(buffer: bytes | memoryview, position: int) -> int:
    (size,) = struct.unpack_from(">h", buffer, position)
    return position + 2 + max(int(size), 0)


RETRIABLE = {3, 5, 6, 7, 9, 19}
"""Unknown topic, no leader yet, not leader, timed out, no replica, not enough replicas: what a starting broker says."""


def produce_until_acknowledged(port: int, topic: str, timeout_s: float, alive: Callable[[], bool]) -> None:
    """Connects, has the topic made, produces one message with acks=all, each again until it succeeds.

    Raises NoAnswer after `timeout_s` or when `alive` says that there is nobody left to answer.
    """
    deadline = time.monotonic() + timeout_s
    last: Exception | None = None
    batch = build_batch(1, 10)
    while time.monotonic() < deadline:
        try:
            with Connection(port, timeout_s=5) as connection:
                while time.monotonic() < deadline:
                    if connection.create_by_metadata(topic) == 0:
                        connection.send(connection.produce_frame(topic, [(0, batch)]))
                        connection.produce_answer()
                        return
                    time.sleep(0.005)
        except Refused as error:
            last = error
            if error.code not in RETRIABLE:
                raise NoAnswer(f"port {port}: {error}") from None
        except NoAnswer as error:
            last = error
        if not alive():
            raise NoAnswer("the process ended")
        time.sleep(0.005)
    raise NoAnswer(f"port {port}: no message acknowledged within {timeout_s} s ({last})")
