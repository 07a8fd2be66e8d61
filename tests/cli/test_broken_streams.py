"""stderr that cannot be written changes nothing; stdout that is closed fails as a full disk does."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker_fixture import RunningBroker
from tests.cli.process import CLOSED_PIPE, FULL, started, unwritable
from tests.cli.runner import events_are_told
from tests.until import until


def code_of(*words: str, input: bytes = b"", **streams: Any) -> int:
    with started(*words, **streams) as process:
        process.communicate(input, timeout=60)
        code: int = process.returncode
        return code


def output_of(*words: str) -> str:
    with started(*words) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out.decode()


def values_of(broker: RunningBroker, topic: str) -> list[str]:
    return output_of("tail", "-B", broker.bootstrap, topic, "-o", "start", "-e").split()


@pytest.fixture(params=[CLOSED_PIPE, FULL])
def nowhere(request: pytest.FixtureRequest) -> Iterator[int]:
    with unwritable(request.param) as descriptor:
        yield descriptor


def test_work_and_exit_code_stand_without_stderr(broker: RunningBroker, topic: str, nowhere: int) -> None:
    at = ("-B", broker.bootstrap)
    lines = "".join(f"{number}\n" for number in range(100)).encode()
    assert code_of("--trace", *at, "topic", "create", topic, stderr=nowhere) == 0
    assert code_of("produce", *at, topic, input=lines, stderr=nowhere) == 0
    assert values_of(broker, topic) == lines.decode().split()
    assert code_of("replay", *at, topic, f"{topic}-copy", stderr=nowhere) == 0
    assert values_of(broker, f"{topic}-copy") == lines.decode().split()


def test_findings_are_told_without_stderr(tmp_path: Path, nowhere: int) -> None:
    damaged = tmp_path / "t-0" / "00000000000000000000.log"
    damaged.parent.mkdir()
    damaged.write_bytes(b"no batch" * 100)
    assert code_of("log", "verify", str(tmp_path), stderr=nowhere) == 1
    assert code_of("topic", "no-such-verb", stderr=nowhere) == 2


def test_a_group_commits_nothing_that_a_closed_stdout_did_not_take(broker: RunningBroker, topic: str) -> None:
    at = ("-B", broker.bootstrap)
    output_of("topic", "create", *at, topic)
    assert code_of("produce", *at, topic, input=b"1\n2\n3\n") == 0
    words = ("tail", *at, topic, "-G", f"{topic}-g", "-o", "start", "-e")
    assert code_of(*words, stdout=None, preexec_fn=lambda: os.close(1)) == 1
    rows = json.loads(output_of("offset", "export", *at, f"{topic}-g", "-o", "json"))["rows"]
    assert {row["offset"] for row in rows} <= {0}


def test_a_closed_stdout_is_told_once(broker: RunningBroker, topic: str) -> None:
    output_of("topic", "create", "-B", broker.bootstrap, topic)
    assert code_of("produce", "-B", broker.bootstrap, topic, input=b"1\n2\n3\n") == 0
    assert code_of("tail", "-B", broker.bootstrap, topic, "-G", f"{topic}-g", "-e") == 0
    until(lambda: events_are_told("-B", broker.bootstrap), "the topic of events")
    log = next(broker.folder.glob(f"data/{topic}-0/*.log"))
    for line in (*("topic list", "events --follow -o jsonl", f"tail {topic} -o start", f"log dump --messages {log}"),):
        words = [*line.split(), *(() if "log dump" in line else ("-B", broker.bootstrap))]
        with started(*words, stdout=None, preexec_fn=lambda: os.close(1)) as process:
            _, err = process.communicate(timeout=60)
            assert (
                process.returncode == 1 and err.count(os.strerror(errno.EBADF).encode()) == len(err.splitlines()) == 1
            ), err
