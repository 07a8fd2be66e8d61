"""Kafka Connect on a klog broker, distributed: a file through a topic into a file, across the kill -9 of its worker."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.maven import JavaTools
from bench.processes import free_port
from tests.broker_fixture import RunningBroker
from tests.interop.kit import PATIENCE_S, cleanup_policy
from tests.server.asking import offsets
from tests.tools.verbs import make_topic
from tests.until import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(
        "two JVMs, one after the other; witness that stays in the default tier: tests/server/test_cleanup_policy.py"
    ),
]

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
STARTS_WITHIN_S = 3 * PATIENCE_S
INTERNAL = ("config", "offset", "status")
"""What Connect keeps in a compacted topic each."""


class Connect:
    """A cluster of Connect with one worker at a time."""

    def __init__(self, tools: JavaTools, bootstrap: str, name: str, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "2000",
            **{f"{one}.storage.topic": f"{name}-{one}" for one in INTERNAL},
            **{f"{one}.storage.replication.factor": "1" for one in INTERNAL},
        }
        given = folder / "worker.properties"
        given.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = tools.command(WORKER, str(given))
        self.log = folder / "worker.log"

    @contextmanager
    def worker(self) -> Iterator[None]:
        """It answers, and is killed by kill -9 at the end."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: self._is_up(process), f"a worker answers; its log is {self.log}", STARTS_WITHIN_S)
            yield
            assert process.poll() is None, self.log.read_text()
        finally:
            process.kill()
            process.wait()

    def _is_up(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self.log.read_text()
        try:
            self.ask("/connectors")
        except urllib.error.HTTPError as error:
            assert error.code in (404, 503), error.read()  # 404 before its resources are registered
            return False
        except OSError:
            return False
        return True

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to GET, or to PUT where there is a body."""
        request = urllib.request.Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def committed(self, connector: str) -> list[dict[str, Any]]:
        """Where the connector goes on, for each part of what it reads."""
        return [one["offset"] for one in self.ask(f"/connectors/{connector}/offsets")["offsets"]]


def test_it_goes_on_after_the_death_of_its_worker(
    broker: RunningBroker, topic: str, framework_tools: JavaTools, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, topic)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.touch()
    connect = Connect(framework_tools, broker.bootstrap, topic, tmp_path)
    lines: list[str] = []

    def write() -> None:
        new = [f"line {len(lines) + number}" for number in range(500)]
        lines.extend(new)
        with source.open("a") as file:
            file.write("".join(line + "\n" for line in new))

    def wait_for_commits() -> None:
        """Until all lines are in the sink, and both connectors have committed that."""
        until(lambda: sink.exists() and sink.read_text().splitlines() == lines, "the sink has it", STARTS_WITHIN_S)
        size, end = source.stat().st_size, offsets(broker.bootstrap, topic)[1]
        until(lambda: connect.committed("from") == [{"position": size}], "the source has committed")
        until(lambda: connect.committed("to") == [{"kafka_offset": end}], "the sink has committed")

    write()
    with connect.worker():
        reads = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1"}
        connect.ask("/connectors/from/config", {**reads, "file": str(source), "topic": topic})
        writes = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": "1"}
        connect.ask("/connectors/to/config", {**writes, "file": str(sink), "topics": topic})
        wait_for_commits()
    write()
    with connect.worker():
        # Nobody tells it of the connectors again: it has them, and where they were, from its topics and its group.
        wait_for_commits()

    policies = {one: cleanup_policy(broker.bootstrap, f"{topic}-{one}") for one in INTERNAL}
    assert policies == dict.fromkeys(INTERNAL, "compact")
