"""Apache Kafka's own Java client, 3.9 and 4.x: one JVM for all that is asked of one version (`Matrix.java`)."""

from __future__ import annotations

import shutil
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.maven import JavaTools, PeerMissing, java_tools
from klog.record.codec import Codec
from tests.interop.kit import PATIENCE_S, Consumed, Missing, Where

PROGRAM = Path(__file__).parent / "Matrix.java"


def tools_of(line: str) -> JavaTools:
    """Kafka's jars of a line, ``kafka-3.9`` or ``kafka-4.1``; Missing where they cannot be had."""
    if shutil.which("javac") is None:
        raise Missing(f"{line}: there is no javac, so no program of ours can use its jars")
    try:
        return java_tools(line)
    except PeerMissing as reason:
        raise Missing(str(reason)) from None


class JavaClient:
    has_admin = True

    def __init__(self, line: str) -> None:
        tools = tools_of(line)
        self.name = f"java-{tools.version}"
        self._process = subprocess.Popen(
            tools.command(str(PROGRAM)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _tell(self, lines: Iterable[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(line + "\n" for line in lines))
        self._process.stdin.flush()

    def _answer(self, when_there: Callable[[], None] | None = None) -> list[list[str]]:
        """The words of each line up to ``done``; AssertionError for ``failed``."""
        assert self._process.stdout is not None
        killer = threading.Timer(3 * PATIENCE_S, self._process.kill)
        killer.start()
        answer: list[list[str]] = []
        try:
            for line in self._process.stdout:
                words = line.split()
                if words == ["done"]:
                    return answer
                assert words[:1] != ["failed"], f"{self.name}: {line}"
                if words == ["there"] and when_there is not None:
                    when_there()
                    self._tell(["go on"])
                else:
                    answer.append(words)
        finally:
            killer.cancel()
        raise AssertionError(f"{self.name} ended after {answer[-1:]}")

    def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        self._tell([f"{bootstrap} produce {topic} {codec.label} {str(idempotent).lower()} {len(values)}"])
        self._tell(b64encode(value).decode() for value in values)
        self._answer()

    def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        pause = str(when_there is not None).lower()
        self._tell([f"{bootstrap} consume {topic} {where.kind.value} {where.at} {count} {pause}"])
        *lines, (_, position, end) = self._answer(when_there)
        records = [(int(offset), b64decode(value)) for _, offset, value in lines]
        return Consumed(records, int(position), int(end))

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        self._tell([f"{bootstrap} group {topic} {group} {count}"])
        return [(int(offset), b64decode(value)) for _, offset, value in self._answer()]

    def matching(self, bootstrap: str, pattern: str, group: str) -> set[str]:
        """The topics that the only member of a group is assigned who subscribes to a regular expression."""
        self._tell([f"{bootstrap} match {pattern} {group}"])
        return {topic for _, topic in self._answer()}

    def transact(self, bootstrap: str) -> str:
        self._tell([f"{bootstrap} transact mine"])
        ((_, *words),) = self._answer()
        return " ".join(words)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        given = " ".join(f"{name}={value}" for name, value in settings.items())
        self._tell([f"{bootstrap} create {topic} {partitions} {given}"])
        self._answer()

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._tell([f"{bootstrap} delete {topic}"])
        self._answer()
