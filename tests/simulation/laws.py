"""What must hold in every world, whatever happens to it within the allowed faults."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from klog.record.batch import walk
from klog.storage.log import Log
from tests.simulation.world import Violation, World


class Message(NamedTuple):
    """A batch of one message, by its producer and number: what a message is told apart by."""

    producer: int
    sequence: int


def messages(data: bytes) -> list[tuple[int, Message]]:
    """(base offset, message) of the batches in ``data``."""
    return [
        (header.base_offset, Message(header.producer_id, header.base_sequence)) for _, header in walk(memoryview(data))
    ]


def content(log: Log) -> dict[int, bytes]:
    """The batches of a log by address."""
    batches: dict[int, bytes] = {}
    address = log.start_address
    while address < log.end.address:
        _, ranges = log.read_from(address, 1 << 20)
        data = b"".join(file.read_at(position, size) for file, position, size in ranges)
        for at, header in walk(memoryview(data)):
            batches[header.base_offset] = data[at : at + header.size_bytes]
            address = header.next_address
    return batches


class Laws:
    def __init__(self, world: World) -> None:
        self.world = world
        self.acked: dict[Message, int] = {}
        """Acknowledged with acks=all -> base offset."""
        self.read: dict[int, Message] = {}
        """What readers were shown, by offset."""
        self.acked_s: list[float] = []
        self._leaders: dict[int, tuple[int, int]] = {}

    def leads(self, epoch: int, broker_id: int, incarnation: int) -> None:
        known = self._leaders.setdefault(epoch, (broker_id, incarnation))
        if known != (broker_id, incarnation):
            raise Violation("one leader an epoch", f"epoch {epoch} is led by {known} and by {broker_id, incarnation}")

    def cuts(self, broker_id: int, address: int, high_watermark: int) -> None:
        if address < high_watermark:
            raise Violation(
                "nothing committed is cut",
                f"broker {broker_id} cuts at {address}, below its high watermark {high_watermark}",
            )

    def acknowledged(self, message: Message, offset: int) -> None:
        self.world.say("acked %s at %d", message, offset)
        if self.read.get(offset, message) != message:
            raise Violation("one message an offset", f"{message} acked at {offset}, where {self.read[offset]} was read")
        self.acked[message] = offset
        self.acked_s.append(self.world.now)

    def go_on(self, silence_s_max: float) -> None:
        """Acknowledgements went on all the time."""
        times = [*self.acked_s, self.world.now]
        longest_s = max(b - a for a, b in pairwise(times))
        if longest_s > silence_s_max:
            raise Violation("acknowledgements go on", f"there was none for {longest_s:.2f} s")

    def shown(self, reader: int, offset: int, message: Message) -> None:
        known = self.read.setdefault(offset, message)
        if known != message:
            raise Violation("one message an offset", f"reader {reader} read {message} at {offset}, was {known}")

    def end(self, leader: int, logs: dict[int, Log]) -> None:
        """When all is quiet: what was acknowledged is there once, what was read too, and all replicas are equal.

        Where a leader had a recorded hole, in what was never acknowledged, some may have more than others.
        """
        contents = {broker_id: content(log) for broker_id, log in logs.items()}
        led = contents[leader]
        for broker_id, one in contents.items():
            holes = logs[leader].holes + logs[broker_id].holes
            for address in sorted(led.keys() | one.keys()):
                if led.get(address) != one.get(address) and not any(start <= address < end for start, end in holes):
                    raise Violation("replicas are equal", f"brokers {leader} and {broker_id} differ at {address}")
        there: dict[Message, int] = {}
        for offset, message in messages(b"".join(led.values())):
            if message in there:
                raise Violation("nothing twice", f"{message} at {there[message]} and {offset}")
            there[message] = offset
        for message, offset in self.acked.items():
            if there.get(message) != offset:
                raise Violation(
                    "nothing acknowledged is lost", f"{message}, acked at {offset}, is at {there.get(message)}"
                )
        for offset, message in self.read.items():
            if there.get(message) != offset:
                raise Violation("nothing read is lost", f"{message}, read at {offset}, is at {there.get(message)}")
