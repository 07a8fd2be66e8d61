"""What a client may not take away: the story of the cluster, and others' deleted topics."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.coordination import paths
from klog.errors import InvalidTopic
from klog.names import CLOSED_TOPICS
from klog.protocol.apis import ApiKey
from tests.broker_fixture import ROOT, RunningBroker
from tests.cli.runner import klog
from tests.processes import KLOG
from tests.server.asking import ask, create, error
from tests.zookeeper_fixture import session_of


def test_no_client_deletes_what_internal_topics_have(broker: RunningBroker) -> None:
    for name in sorted(CLOSED_TOPICS):
        topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}]
        answer = ask(broker.bootstrap, ApiKey.DELETE_RECORDS, 1, topics=topics, timeout=5000)
        assert error(answer.topics[0].partitions[0]) == InvalidTopic.wire, name


def test_a_damaged_topic_holds_up_no_deleted_one(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker().start()
    at = ["-B", broker.bootstrap, "-z", broker.zookeeper]
    create(broker.bootstrap, topic)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    damaged = paths.topic("damaged")
    with session_of(broker.zookeeper) as session:
        session.create(damaged, b"no JSON")
    ran = klog("topic", "list", "--deleted", *at, "-o", "json")
    assert [row["topic"] for row in ran.rows] == [topic]
    assert damaged in ran.stderr
    assert klog("topic", "restore", topic, *at).code == 0


@pytest.mark.parametrize("text", ["a" + ".a" * 60_000 + " = 1\n", "[a" + ".a" * 60_000 + "]\n"], ids=["key", "section"])
def test_a_project_file_with_a_key_of_very_many_parts(tmp_path: Path, text: str) -> None:
    (tmp_path / ".klog.toml").write_text(text)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    command = [*KLOG, "profile", "list"]
    ran = subprocess.run(
        command, cwd=tmp_path, preexec_fn=limited, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2, ran
    assert "line 1" in ran.stderr and str(ROOT) not in ran.stderr
