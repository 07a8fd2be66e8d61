"""kcat as Debian has it: 1.7.1 on librdkafka 2.0.2, of before the fallback from ApiVersions v3 and of compression."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable

from klog.record.codec import Codec
from tests.interop.kit import PATIENCE_S, Consumed, From, Missing, Where


class Kcat:
    name = "kcat"
    has_admin = False

    def __init__(self) -> None:
        if shutil.which("kcat") is None:
            raise Missing("kcat is not installed (Debian: apt-get install kcat)")

    def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        settings = [f"enable.idempotence={str(idempotent).lower()}", "acks=all", "linger.ms=100"]
        self._run(
            *("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec.label),
            *(part for setting in settings for part in ("-X", setting)),
            text=b"".join(value + b"\n" for value in values),
        )

    def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        """The position is what kcat says when it has reached the end; where it stops before, its last record + 1."""
        start = {
            From.START: "beginning",
            From.END: "end",
            From.OFFSET: str(where.at),
            From.TIME: f"s@{where.at}",
        }[where.kind]
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", start, "-f", "%o %s\\n", "-u"]
        command += ["-X", "auto.offset.reset=error", "-X", "check.crcs=true"]
        command += ["-c", str(count)] if when_there is not None else ["-e"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        killer = threading.Timer(PATIENCE_S, process.kill)
        killer.start()
        said: list[str] = []
        try:
            if when_there is not None:
                while "Reached end" not in (line := process.stderr.readline().decode()):
                    assert line, f"kcat ended: {''.join(said)}"
                    said.append(line)
                said.append(line)
                when_there()
            output, rest = process.communicate()
        finally:
            killer.cancel()
            process.kill()
            process.wait()
        said.append(rest.decode())
        assert process.returncode == 0, "".join(said)
        lines = [line.split(b" ", 1) for line in output.splitlines()]
        records = [(int(offset), value) for offset, value in lines]
        reached = [text.split("offset ")[1].split(":")[0].split()[0] for text in said if "Reached end" in text]
        end = self._end(bootstrap, topic)
        if when_there is not None or not reached:
            return Consumed(records, records[-1][0] + 1, end)
        return Consumed(records, int(reached[-1]), end)

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        """It commits what it has printed when it ends."""
        settings = ("-X", "auto.offset.reset=earliest", "-X", "enable.auto.commit=true")
        output = self._run(
            *("-b", bootstrap, *settings, "-f", "%o %s\\n", "-u", "-c", str(count), "-G", group, topic),
        )
        return [(int(offset), value) for offset, value in (line.split(b" ", 1) for line in output.splitlines())]

    def _end(self, bootstrap: str, topic: str) -> int:
        answer = self._run("-Q", "-b", bootstrap, "-t", f"{topic}:0:-1")
        return int(answer.decode().split("offset ")[1])

    def transact(self, bootstrap: str) -> str:
        command = ["kcat", "-P", "-b", bootstrap, "-t", "unused", "-X", "transactional.id=mine"]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode != 0
        return done.stderr.decode()

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        raise NotImplementedError

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        raise NotImplementedError

    @staticmethod
    def _run(*arguments: str, text: bytes = b"") -> bytes:
        done = subprocess.run(["kcat", *arguments], input=text, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout
