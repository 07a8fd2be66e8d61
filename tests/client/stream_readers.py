"""What the tests of the paper's consumer share: threads that read streams, and processes that do."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from klog.client.consumer import Consumer
from klog.client.message import Message
from klog.client.streams import MessageStream
from klog.errors import ConsumerTimeout
from klog.names import TopicPartition
from tests.until import until

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_S = 30.0


def drain(stream: MessageStream) -> list[Message]:
    """What there is, until ``consumer.timeout.ms`` has passed without a message."""
    found = []
    try:
        for message in stream:
            found.append(message)
    except ConsumerTimeout:
        pass
    return found


class Reading:
    """A thread a stream; what they have read."""

    def __init__(self, streams: Iterable[MessageStream]) -> None:
        self.messages: list[Message] = []
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: MessageStream) -> None:
        try:
            for message in stream:
                self.messages.append(message)
        except Exception as error:
            self.errors.append(error)

    @property
    def values(self) -> list[bytes]:
        return [message.payload() for message in list(self.messages)]

    def wait_for(self, count: int) -> list[bytes]:
        until(lambda: len(self.messages) >= count or self.errors, f"{count} messages")
        assert not self.errors, self.errors
        return self.values

    def join(self) -> None:
        """Until every stream has ended."""
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a stream has not ended"


class ReadingProcess:
    """A consumer in a process of its own, whose lines survive its end: ``time topic partition offset claim value``."""

    def __init__(self, log: Path, zookeeper: str, group: str, topic: str, streams: int, **settings: object) -> None:
        self.log = log
        given = [f"{name}={value}" for name, value in settings.items()]
        with log.open("ab") as output, log.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__, zookeeper, group, topic, str(streams), *given],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    @property
    def lines(self) -> list[list[str]]:
        """Whole ones; the last of a process that was killed may be cut."""
        text = self.log.read_text()
        return [line.split(" ", 5) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def trouble(self) -> str:
        return self.log.with_suffix(".err").read_text()[-4000:]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """A clean shutdown; the exit code."""
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


def main(zookeeper: str, group: str, topic: str, streams: str, *settings: str) -> None:
    """Read for ever; SIGTERM is a clean shutdown."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    consumer = Consumer(zookeeper, group, **dict(one.split("=", 1) for one in settings))
    made = consumer.create_message_streams(topic, int(streams))
    rebalancer = consumer._rebalancer
    assert rebalancer is not None
    versions: dict[TopicPartition, int] = {}

    def read(stream: MessageStream) -> None:
        for message in stream:
            now = time.monotonic()
            assert message.topic is not None and message.partition is not None
            one = TopicPartition(message.topic, message.partition)
            claim = rebalancer.membership.owned.get(one)
            if claim is not None:
                versions[one] = claim.version
            line = f"{now:.6f} {one.topic} {one.partition} {message.offset} {versions.get(one, -1)} "
            os.write(1, line.encode() + message.payload() + b"\n")

    threads = [threading.Thread(target=read, args=(stream,)) for stream in made]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=consumer.shutdown).start())
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
