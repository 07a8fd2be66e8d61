"""Apache Kafka's Java clients against three brokers of which two must have what is acknowledged."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from klog.names import AUDIT_TOPIC, EVENTS_TOPIC
from tests.cluster_fixture import RunningCluster, make_cluster
from tests.interop.java import JavaClient, tools_of
from tests.interop.kit import PATIENCE_S, Missing

__all__ = ["make_cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.long("three brokers for two JVMs of Kafka's own test")]

LINE = "kafka-4.1"
COMPATIBILITY_TEST = "org.apache.kafka.tools.ClientCompatibilityTest"
SERVED = (
    "offsets-for-times",
    "cluster-id",
    "create-topics",
    "describe-configs",
    "idempotent-producer",
    "describe-acls",
)


def test_apaches_own_test_and_a_consumer_of_everything(make_cluster: Callable[..., RunningCluster]) -> None:
    try:
        tools, client = tools_of(LINE), JavaClient(LINE)
    except Missing as reason:
        pytest.skip(str(reason))
    try:
        cluster = make_cluster(3, **{"min.insync.replicas": "2"}).start()
        cluster.create("alone", factor=1)
        flags = [f"--{name}-supported=True" for name in SERVED]
        done = subprocess.run(
            tools.command(
                COMPATIBILITY_TEST,
                *("--bootstrap-server", cluster.bootstrap, "--num-cluster-nodes", "3", "--topic", "alone"),
                *("--expect-record-too-large-exception", "False", *flags),
            ),
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0 and "SUCCESS." in done.stdout, done.stdout + done.stderr

        cluster.create(AUDIT_TOPIC, factor=3)
        cluster.wait_until(lambda: cluster.leader_of(EVENTS_TOPIC) >= 0, "the story is there", PATIENCE_S)
        known = {topic.name for topic in cluster.metadata().topics}
        assert {EVENTS_TOPIC, AUDIT_TOPIC, "alone"} < known
        assert client.matching(cluster.bootstrap, ".*", "all") == known - {EVENTS_TOPIC, AUDIT_TOPIC}
    finally:
        client.close()
