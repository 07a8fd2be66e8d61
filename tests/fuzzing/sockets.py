"""Damaged frames over sockets, as a stranger sends them: many in one go, with lengths that lie, cut off anywhere."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections import Counter
from typing import Final

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.authentication import BEFORE
from tests.fuzzing.frames import Frames
from tests.fuzzing.target import PASSWORD, USER, Target
from tests.server.wire import framed

ENDS_WITHIN_S: Final = 20.0
"""After the attacker's last byte."""
LENGTHS: Final = (0, -1, 1, 2**31 - 1, -(2**31), 104857600, 104857601, 0x16030102)


class Attacker:
    """Connects, sends some frames and its end, and reads whatever comes until the broker's end."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)
        self._frames = Frames(self._chance)
        self._logins = Frames(self._chance, sorted(BEFORE))
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def attack(self, connections: int) -> None:
        """TimeoutError where the broker neither answers nor ends a connection."""
        for _ in range(connections):
            who = self._chance.choice(("plain", "before", "login", "user"))
            self._connection(who)

    def _connection(self, who: str) -> None:
        port = self._target.ports["PLAINTEXT" if who == "plain" else "SASL_PLAINTEXT"]
        chance = self._chance
        with socket.create_connection(("127.0.0.1", port), ENDS_WITHIN_S) as sock:
            sock.settimeout(ENDS_WITHIN_S)
            with contextlib.suppress(ConnectionError):
                if who == "user":
                    self._log_in(sock)
                if who == "login":
                    sock.sendall(framed(_handshake(chance.choice(("PLAIN", "SCRAM-SHA-256")))))
                frames = self._logins if who in ("login", "before") and chance.random() < 0.8 else self._frames
                burst = b"".join(self._length_and(frames.next().body) for _ in range(chance.choice((1, 4, 12))))
                if chance.random() < 0.1:
                    burst = burst[: chance.randrange(len(burst))]
                sock.sendall(burst)
                sock.shutdown(socket.SHUT_WR)
                received = 0
                while piece := sock.recv(1 << 16):
                    received += len(piece)
                self.answered[who] += received > 0
            self.sent[who] += 1

    def _length_and(self, body: bytes) -> bytes:
        if self._chance.random() < 0.03:
            return struct.pack(">i", self._chance.choice((*LENGTHS, len(body) + 1, max(len(body) - 1, 1)))) + body
        return framed(body)

    def _log_in(self, sock: socket.socket) -> None:
        password = f"\0{USER}\0{PASSWORD}".encode()
        for entity in (
            codec.request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN"),
            codec.request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=password),
        ):
            sock.sendall(codec.encode_request(entity, 1, "fuzz"))
            (size,) = struct.unpack(">i", _exactly(sock, 4))
            key = entity.__api_key__
            _, answer = codec.decode_response(_exactly(sock, size), key, entity.__version__)
            assert answer.error_code.value == 0, answer


def _handshake(mechanism: str) -> bytes:
    return codec.encode_request(codec.request(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism), 1, "fuzz")[4:]


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = sock.recv(size - len(got))
        if not piece:
            raise EOFError("the broker ended the connection")
        got += piece
    return got
