"""Who produces and who reads: by the leader they believe in, again and again until it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError, OffsetOutOfRange, OutOfOrderSequence
from klog.record.records import Record, encode_batch
from tests.simulation.laws import Message, messages
from tests.simulation.network import ENDED, REFUSED
from tests.simulation.world import Process, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PATIENCE_S = 1.0
AGAIN_S = 0.05


class _Client(Process):
    """Knows a leader, and its epoch: what is older than it knows it does not believe (KIP-320)."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster.world, f"client {number}")
        self.cluster = cluster
        self.number = number
        self.leader = -1
        self.leader_epoch = -1
        self._asked = 0

    def ask(self, verb: str, arguments: tuple[Any, ...]) -> None:
        """One question at a time; `answered` is called once, with ENDED where there is no answer in time."""
        self._asked += 1
        number = self._asked

        def done(answer: Any) -> None:
            if number == self._asked:
                self._asked += 1
                self._answered(answer)

        self.cluster.network.call(-self.number, self, self.leader, verb, arguments, done)
        self.after(PATIENCE_S, done, ENDED)

    def _answered(self, answer: Any) -> None:
        if answer is not ENDED and answer is not REFUSED and not isinstance(answer, KlogError):
            if answer[0] == "metadata":
                if answer[1] >= 0 and answer[2] >= self.leader_epoch:
                    self.leader, self.leader_epoch = answer[1], answer[2]
                    self.act()
                    return
            else:
                self.told(answer)
                return
        elif isinstance(answer, KlogError):
            self.failed(answer)
        self.leader = -1
        self.after(AGAIN_S, self.act)

    def act(self) -> None:
        if self.leader >= 0:
            self.request()
            return
        self.leader = self.world.draw.choice(tuple(self.cluster.hosts))
        self.ask("metadata", ())

    def request(self) -> None:
        raise NotImplementedError

    def told(self, answer: Any) -> None:
        raise NotImplementedError

    def failed(self, error: KlogError) -> None:
        raise NotImplementedError


class Producer(_Client):
    """Messages of its own, one under way at a time, idempotent: the same batch until it is acknowledged."""

    def __init__(self, cluster: Cluster, number: int, every_s: float) -> None:
        super().__init__(cluster, number)
        self._every_s = every_s
        self._sequence = -1
        self._batch = b""
        self.is_done = False
        self.is_stopping = False
        self.after(every_s, self._next)

    def _next(self) -> None:
        if self.is_stopping:
            self.is_done = True
            return
        self._sequence += 1
        value = b"%d/%d" % (self.number, self._sequence) + b"." * self.world.draw.randrange(40)
        record = Record(0, 1_000, None, value)
        self._batch = bytes(
            encode_batch([record], producer_id=self.number, producer_epoch=0, base_sequence=self._sequence)
        )
        self.act()

    def request(self) -> None:
        self.ask("produce", (self.leader_epoch, self._batch))

    def told(self, answer: Any) -> None:
        _, offset, _ = answer
        self.cluster.laws.acknowledged(Message(self.number, self._sequence), offset)
        self.after(self._every_s * 2 * self.world.draw.random(), self._next)

    def failed(self, error: KlogError) -> None:
        if isinstance(error, OutOfOrderSequence):
            raise Violation("nothing acknowledged is lost", f"of producer {self.number}: {error.message}")


class Reader(_Client):
    """Reads on and on from the start, and asks now and then where the end is."""

    def __init__(self, cluster: Cluster, number: int, every_s: float) -> None:
        super().__init__(cluster, number)
        self._every_s = every_s
        self.offset = 0
        self._polls = 0
        self._latest = 0
        self.after(every_s, self.act)

    def request(self) -> None:
        self._polls += 1
        if self._polls % 3:
            self.ask("consume", (self.leader_epoch, self.offset))
        else:
            self.ask("latest", (self.leader_epoch,))

    def told(self, answer: Any) -> None:
        if answer[0] == "data":
            for offset, message in messages(answer[1]):
                self.cluster.laws.shown(self.number, offset, message)
                self.offset = offset + 1
        elif answer[0] == "latest":
            if answer[1] < max(self._latest, self.offset):
                raise Violation(
                    "the end shown never goes back",
                    f"reader {self.number} was shown {answer[1]} after {max(self._latest, self.offset)}",
                )
            self._latest = answer[1]
        self.after(self._every_s * 2 * self.world.draw.random(), self.act)

    def failed(self, error: KlogError) -> None:
        if isinstance(error, OffsetOutOfRange):
            raise Violation("a position that was read stays in range", f"reader {self.number}: {error.message}")
