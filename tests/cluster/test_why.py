"""`klog why` does not know what the test did to the brokers: it has to find out."""

from __future__ import annotations

import pytest

from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster


@pytest.mark.parametrize(("harm", "replicas", "words"), [
    ("kill", [1, 2], ("is dead", "start broker 2")),
    ("kill", [2], ("is dead", "start broker 2")),
    ("pause", [1, 2], ("hangs", "kill -CONT")),
])  # fmt: skip
def test_the_cause_is_found(three: RunningCluster, harm: str, replicas: list[int], words: tuple[str, str]) -> None:
    topic = three.create(f"why-{harm}-{len(replicas)}", assignment=[replicas])
    others = f"{three.brokers[1].bootstrap},{three.brokers[3].bootstrap},{three.brokers[2].bootstrap}"
    assert klog("why", topic, "-B", others, "-o", "json").code == 0
    getattr(three, harm)(2)
    three.wait_until_unregistered(2)
    three.wait_until(
        lambda: (part := three.partitions(topic, 1)[0]).leader_id < 0 or len(part.isr_nodes) < len(replicas), "harmed"
    )
    ran = klog("why", topic, "-B", others, "-o", "json")
    assert ran.code == 1, ran.stderr
    cause = ran.rows[-1]
    assert "broker 2" in cause["what"] and words[0] in cause["what"] and words[1] in cause["do"], ran.rows
    assert [row["do"] for row in ran.rows[:-1]] == [None] * (len(ran.rows) - 1)
