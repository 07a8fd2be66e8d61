"""The wire as a badly behaved client uses it, and a well-behaved one beside it.

`RawConnection`  bytes in, bytes out, over one blocking socket
`bystander`      a client of good manners that works all the while, and must not notice anything
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Self

import psutil

from klog.client.blocking import BlockingChannel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import Record, decode_batch, encode_batch
from tests.broker_fixture import RunningBroker
from tests.server.asking import FIRST_MS, answered, create, error, produce_request

ANSWER_WITHIN_S = 10.0


class RawConnection:
    """One socket to a broker; a context manager. What the broker does with it is for the test to say."""

    def __init__(
        self, bootstrap: str, receive_buffer_bytes: int | None = None, source_address: str | None = None
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:  # before connecting, or the window is agreed on already
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if source_address is not None:
            self.socket.bind((source_address, 0))
        self.socket.settimeout(ANSWER_WITHIN_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def name(self) -> str:
        """HOST:PORT as the broker names us in its log."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end_of_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def answer(self) -> bytes:
        """The next answer without its length."""
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def put(self, key: int, version: int, /, **values: object) -> None:
        """Send a request."""
        self.send(codec.encode_request(codec.request(key, version, **values), 7, "test"))

    def take(self, key: int, version: int) -> Any:
        """The next answer, of a request of this version."""
        return codec.decode_response(self.answer(), key, version)[1]

    def ask(self, key: int, version: int, /, **values: object) -> Any:
        self.put(key, version, **values)
        return self.take(key, version)

    def is_closed_by_broker(self) -> bool:
        """Whether the next thing that comes is the end of the connection; TimeoutError if nothing comes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:  # it closed with bytes of ours unread
            return True


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def head(key: int, version: int, correlation_id: int = 7, client_id: bytes | None = b"test") -> bytes:
    """A request's head as versions that are not flexible have it."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + name


ASKED = {
    "Metadata": framed(head(ApiKey.METADATA, 1) + struct.pack(">i", -1)),
    "OffsetFetch": framed(head(ApiKey.OFFSET_FETCH, 2) + struct.pack(">h1si", 1, b"g", -1)),
}
"""Requests that are short, and dear to answer."""


class Bystander:
    """Produces a record and fetches it, again and again, in a thread of its own."""

    def __init__(self, broker: RunningBroker) -> None:
        self.rounds = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None
        self._bootstrap = broker.bootstrap
        self._topic = f"bystander-{secrets.token_hex(6)}"
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._channel: BlockingChannel | None = None
        create(self._bootstrap, self._topic)

    def _run(self) -> None:
        channel = self._channel
        assert channel is not None
        try:
            try:
                while not self._ending.is_set():
                    began_s = time.monotonic()
                    self._round(channel)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
                    self.rounds += 1
                    self._ending.wait(0.005)
            finally:
                channel.close()
        except BaseException as problem:
            self.failure = problem

    def _round(self, channel: BlockingChannel) -> None:
        value = b"round %d" % self.rounds
        batch = bytes(encode_batch([Record(0, FIRST_MS, None, value, ())]))
        produced = channel.request(produce_request(self._topic, batch)).responses[0].partition_responses[0]
        assert error(produced) == 0, produced
        fetched = channel.request(fetch_request(self._topic, produced.base_offset))
        one = fetched.responses[0].partitions[0]
        assert error(one) == 0, one
        assert [record.value for record in decode_batch(bytearray(one.records))] == [value]

    def start(self) -> None:
        """Connected when it returns: what the test does next may leave no room for another connection."""
        host, _, port = self._bootstrap.rpartition(":")
        self._channel = BlockingChannel.connect(host, int(port))
        self._thread.start()

    def end(self) -> None:
        """AssertionError if it has noticed anything."""
        self._ending.set()
        self._thread.join(30)
        if self.failure is not None:
            raise AssertionError("a well-behaved client was disturbed") from self.failure
        assert self.rounds > 0, "the bystander got nothing done"

    def go_on(self, rounds: int = 3, timeout_s: float = 20.0) -> None:
        """Until it has done some more rounds from now on."""
        wanted = self.rounds + rounds
        deadline = time.monotonic() + timeout_s
        while self.rounds < wanted:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, "a well-behaved client waits"
            time.sleep(0.005)


@contextlib.contextmanager
def bystander(broker: RunningBroker) -> Iterator[Bystander]:
    """A well-behaved client that works until the block ends; the broker's log must not blame itself meanwhile."""
    log_before = len(broker.log_text)
    one = Bystander(broker)
    one.start()
    try:
        yield one
        one.go_on()
    finally:
        one.end()
    check_log(broker.log_text[log_before:])


def check_log(text: str) -> None:
    """AssertionError, with what is around it, where a broker's log blames the broker."""
    for blame in ("internal error", "our fault", "Traceback", " CRITICAL "):
        at = text.find(blame)
        assert at < 0, text[max(at - 500, 0) : at + 3000]


def fetch_request(
    topic: str,
    offset: int,
    *,
    version: int = 11,
    partition: int | Iterable[int] = 0,
    replica_id: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
) -> Any:
    """Of one partition, or of several."""
    asked = {
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": partition_max_bytes,
    }
    partitions = [{"partition": one, **asked} for one in ([partition] if isinstance(partition, int) else partition)]
    return codec.request(
        ApiKey.FETCH,
        version,
        replica_id=replica_id,
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[{"topic": topic, "partitions": partitions}],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetched(bootstrap: str, topic: str, offset: int, **asked: Any) -> Any:
    """What a partition is answered."""
    return answered(bootstrap, fetch_request(topic, offset, **asked)).responses[0].partitions[0]


def resident_bytes(pid: int) -> int:
    """What a process has resident now."""
    return int(psutil.Process(pid).memory_info().rss)


def open_descriptors(pid: int) -> int:
    return int(psutil.Process(pid).num_fds())
