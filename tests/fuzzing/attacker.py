"""Damaged frames over sockets, as a stranger sends them: many in one go, with lengths that lie, cut off anywhere."""

from __future__ import annotations

import contextlib
import random
import struct
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from klog.protocol.apis import ApiKey
from klog.server.authentication import BEFORE
from tests.fuzzing.frames import STOPPERS, Frame, Frames
from tests.fuzzing.target import PASSWORDS, ROOT, USER, Target
from tests.server.wire import RawConnection, framed

ENDS_WITHIN_S: Final = 20.0
"""After the attacker's last byte."""
LENGTHS: Final = (0, -1, 1, 2**31 - 1, -(2**31), 104857600, 104857601, 0x16030102)
WHO: Final = ("nobody", "anonymous", USER)
SAVED: Final = 400
"""Frames that are kept for a finding: one that fails later is among them."""


class Attacker:
    """Connects as one of ``who``, sends some frames and its end, and reads whatever comes until the broker's end.

    ``who``: nobody (before a login, and in the middle of one), anonymous, a user of few permissions, or root.
    """

    def __init__(self, target: Target, seed: int, who: Sequence[str] = WHO, keys: Sequence[int] | None = None) -> None:
        """``keys``: of which requests; None: of all."""
        self._target = target
        self._chance = random.Random(seed)
        self._who = who
        self._frames = Frames(self._chance, keys)
        self._before_login = Frames(self._chance, sorted(BEFORE))
        self.sent: Counter[str] = Counter()
        """Frames."""
        self.answered: Counter[str] = Counter()
        """Connections on which something came back."""
        self.last: deque[tuple[str, int, int, str]] = deque(maxlen=SAVED)

    def attack(self, frames: int) -> None:
        """So many more. TimeoutError where the broker neither answers nor ends a connection."""
        wanted = self.sent.total() + frames
        while self.sent.total() < wanted:
            self._connection(self._chance.choice(self._who))

    def _connection(self, who: str) -> None:
        port = self._target.ports["PLAINTEXT" if who == "anonymous" else "SASL_PLAINTEXT"]
        chance = self._chance
        with RawConnection(f"127.0.0.1:{port}") as connection:
            connection.socket.settimeout(ENDS_WITHIN_S)
            with contextlib.suppress(ConnectionError):
                if who in PASSWORDS:
                    assert connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code.value == 0
                    password = f"\0{who}\0{PASSWORDS[who]}".encode()
                    assert connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=password).error_code.value == 0
                elif who == "nobody" and chance.random() < 0.5:
                    connection.put(ApiKey.SASL_HANDSHAKE, 1, mechanism=chance.choice(("PLAIN", "SCRAM-SHA-256")))
                burst = b"".join(self._length_and(self._next(who).body) for _ in range(chance.choice((1, 2, 6))))
                if chance.random() < 0.1:
                    burst = burst[: chance.randrange(len(burst))]
                connection.send(burst)
                connection.end_of_sending()
                received = 0
                while piece := connection.socket.recv(1 << 16):
                    received += len(piece)
                self.answered[who] += received > 0

    def _next(self, who: str) -> Frame:
        frames = self._before_login if who == "nobody" and self._chance.random() < 0.8 else self._frames
        frame = frames.next()
        while who == ROOT and frame.key in STOPPERS:
            frame = frames.next()
        self.sent[who] += 1
        self.last.append((who, frame.key, frame.version, frame.body.hex()))
        return frame

    def _length_and(self, body: bytes) -> bytes:
        if self._chance.random() < 0.03:
            return struct.pack(">i", self._chance.choice((*LENGTHS, len(body) + 1, max(len(body) - 1, 1)))) + body
        return framed(body)
