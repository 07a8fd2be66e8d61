"""A server that does nothing: it drops what is produced, says yes, and answers every fetch with the same ready bytes.

    python -m bench.null_broker PORT

What a client reaches against it is the client's own ceiling: a figure near it says nothing about a broker. It knows
one broker (itself), every topic asked for, and as many partitions of it as there is any use for.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading

from bench import wire

SERVED = ((wire.PRODUCE, 3, 3), (wire.FETCH, 4, 4), (wire.METADATA, 1, 4), (wire.API_VERSIONS, 0, 0))
PARTITIONS = 1000
HEAD_BYTES = 4 + 2 + 2 + 4
FETCHED_BATCHES = 60
FETCHED_MESSAGES = 80
UNSUPPORTED_VERSION = 35


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _api_versions(error: int) -> bytes:
    return struct.pack(">hi", error, len(SERVED)) + b"".join(struct.pack(">hhh", *api) for api in SERVED)


def _metadata(port: int, version: int, body: bytes) -> bytes:
    topics: list[bytes] = []
    position = 4
    for _ in range(max(int.from_bytes(body[:4], "big", signed=True), 0)):
        (size,) = struct.unpack_from(">h", body, position)
        topics.append(body[position + 2 : position + 2 + size])
        position += 2 + size
    answer = bytearray(b"\0\0\0\0" if version >= 3 else b"")
    answer += struct.pack(">ii", 1, 1) + _string(b"127.0.0.1") + struct.pack(">ih", port, -1)
    if version >= 2:
        answer += _string(b"null")
    answer += struct.pack(">ii", 1, len(topics))
    for topic in topics:
        answer += struct.pack(">h", 0) + _string(topic) + b"\0" + struct.pack(">i", PARTITIONS)
        for partition in range(PARTITIONS):
            answer += struct.pack(">hiiiiii", 0, partition, 1, 1, 1, 1, 1)
    return bytes(answer)


class NullConnection:
    """One client's connection, served by one thread until it closes."""

    def __init__(self, connection: socket.socket, port: int, fetched: bytes) -> None:
        self._socket = connection
        self._port = port
        self._fetched = fetched
        self._buffer = memoryview(bytearray(8 << 20))

    def serve(self) -> None:
        with self._socket:
            filled = 0
            while True:
                got = self._socket.recv_into(self._buffer[filled:])
                if got == 0:
                    return
                filled += got
                position = 0
                answers: list[bytes] = []
                while filled - position >= 4:
                    size = int.from_bytes(self._buffer[position : position + 4], "big")
                    if filled - position - 4 < size:
                        break
                    answers.append(self._answer(self._buffer[position + 4 : position + 4 + size]))
                    position += 4 + size
                if answers:
                    self._socket.sendall(b"".join(answers))
                if position:
                    self._buffer[: filled - position] = bytes(self._buffer[position:filled])
                    filled -= position

    def _answer(self, frame: memoryview) -> bytes:
        key, version, correlation, client_bytes = struct.unpack_from(">hhih", frame, 0)
        body = frame[10 + max(client_bytes, 0) :]
        if key == wire.PRODUCE:
            answer = self._produce(body)
        elif key == wire.FETCH:
            answer = self._fetch(body)
        elif key == wire.METADATA:
            answer = _metadata(self._port, version, bytes(body))
        else:
            answer = _api_versions(UNSUPPORTED_VERSION if version > 0 else 0)
        if answer is None:
            return b""
        return struct.pack(">ii", 4 + len(answer), correlation) + answer

    @staticmethod
    def _produce(body: memoryview) -> bytes | None:
        """librdkafka and `bench.wire` send one topic; the first partition stands for all that one request has."""
        (transactional_bytes,) = struct.unpack_from(">h", body, 0)
        position = 2 + max(transactional_bytes, 0)
        acks, _, _, name_bytes = struct.unpack_from(">hiih", body, position)
        position += 12
        name = bytes(body[position : position + name_bytes])
        partition_count, partition = struct.unpack_from(">ii", body, position + name_bytes)
        if acks == 0:
            return None
        assert partition_count == 1
        one = struct.pack(">i", 1)
        return one + _string(name) + one + struct.pack(">ihqq", partition, 0, 0, -1) + b"\0\0\0\0"

    def _fetch(self, body: memoryview) -> bytes:
        (name_bytes,) = struct.unpack_from(">h", body, 21)
        name = bytes(body[23 : 23 + name_bytes])
        (partition,) = struct.unpack_from(">i", body, 27 + name_bytes)
        one = struct.pack(">i", 1)
        fields = struct.pack(">ihqqi", partition, 0, 1 << 40, 1 << 40, 0)
        return b"\0\0\0\0" + one + _string(name) + one + fields + struct.pack(">i", len(self._fetched)) + self._fetched


def serve(port: int) -> None:
    """Accepts until the process is ended."""
    fetched = wire.build_batch(FETCHED_MESSAGES, 200) * FETCHED_BATCHES
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one = NullConnection(connection, port, fetched)
            threading.Thread(target=one.serve, daemon=True).start()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
