"""Goal: whoever can reach a broker's port can read its metrics. Method: `klog metrics` against real brokers."""

from __future__ import annotations

import asyncio
import json

import pytest

from klog.admin.metrics import MetricRow, read_metrics
from klog.client.cluster import Cluster
from klog.errors import BrokerNotAvailable, InvalidRequest
from klog.protocol.apis import ApiKey
from klog.server.handlers.read_metrics import PATTERNS_MAX, SAMPLES_MAX
from klog.server.metrics_table import METRICS, OF_PROCESS
from tests.cli.process import started
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import run, send


def read(cluster: RunningCluster, *patterns: str, broker: int | None = None) -> list[MetricRow]:
    rows: list[MetricRow] = run(cluster.bootstrap, lambda one: read_metrics(one, patterns, broker=broker))
    return rows


def test_every_metric_of_every_broker_and_all_pages(three: RunningCluster, topic: str) -> None:
    count = SAMPLES_MAX // 3 + 10  # three metrics of each partition: more than a page
    three.create(topic, assignment=[[1]] * (count - 2) + [[2], [3]])
    three.create(f"{topic}-r", assignment=[[1, 2]])
    send(three.bootstrap, topic, b"a\n" * 5000)
    rows = read(three)
    assert {row.broker for row in rows} == {1, 2, 3} and not [row for row in rows if row.error]
    found = {row.name for row in rows}
    without_samples = {one.name for one in METRICS if one.kind == "summary"} | {
        "klog_events_told_total",
        *("klog_group_lag_bytes", "klog_group_lag_messages", "klog_group_lag_ms"),
        "klog_certificate_days_left",
        "klog_listener_full",
        "klog_listener_slowed_seconds_total",
    }
    assert found >= {one.name for one in (*METRICS, *OF_PROCESS)} - without_samples
    keys = [(row.broker, row.name, *row.labels.items()) for row in rows]
    assert len(keys) == len(set(keys)) > SAMPLES_MAX
    sizes = [row for row in rows if row.name == "kafka_log_log_size" and row.labels["topic"] == topic]
    assert len(sizes) == count
    queue = [row for row in rows if row.name.endswith(("requestqueuetimems_count", "responsesendtimems_count"))]
    assert {row.labels["request"] for row in queue} >= {"Produce", "Metadata"}
    assert all((row.value or 0) > 0 for row in queue if row.labels["request"] == "Produce")
    assert klog("topic", "delete", topic, "--purge", "-y", "-B", three.bootstrap).code == 0


def test_lag_of_a_replica_and_of_a_group(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2, 3]])

    def lag() -> float | None:
        rows = read(three, "klog_replica_lag_bytes", broker=1)
        return {row.labels["replica"]: row.value for row in rows if row.labels["topic"] == topic}.get("3")

    three.wait_until(lambda: lag() == 0, "broker 3 has fetched")
    three.pause(3)
    send(three.bootstrap, topic, b"0123456789\n" * 1000, acks="1")
    assert (lag() or 0) > 1000
    three.cont(3)
    three.wait_in_sync(topic)
    made = klog("group", "rewind", f"g-{topic}", "--to", "start", "-t", topic, "--create", "-y", "-B", three.bootstrap)
    assert made.code == 0, made.stderr
    ran = klog("metrics", "klog_group_lag_[bm]*", "-o", "json", "-B", three.bootstrap)
    mine = {row["name"]: row for row in ran.rows if row["labels"]["group"] == f"g-{topic}"}
    assert set(mine) == {"klog_group_lag_bytes", "klog_group_lag_messages", "klog_group_lag_ms"}
    assert mine["klog_group_lag_messages"] | {"kind": "gauge"} == {
        "broker": 1, "name": "klog_group_lag_messages", "kind": "gauge", "value": 1000, "error": None, "message": None,
        "labels": {"group": f"g-{topic}", "topic": topic, "partition": "0"},
    }  # fmt: skip


def test_what_is_not_there_and_what_is_too_much(three: RunningCluster) -> None:
    assert klog("metrics", "no_such_*", "-B", three.bootstrap).code == 1
    with pytest.raises(BrokerNotAvailable):
        read(three, broker=99)
    (row,) = read(three, *["*"] * (PATTERNS_MAX + 1), broker=1)
    assert row.error == InvalidRequest.code
    ran = klog("metrics", "kafka_server_replicamanager_leadercount", "--broker", 2, "-B", three.bootstrap)
    assert ran.code == 0 and ran.stdout.split()[:4] == ["BROKER", "NAME", "LABELS", "VALUE"]


def test_a_page_begins_where_it_is_asked_to(three: RunningCluster) -> None:
    async def ask(name: str, *labels: str) -> list[str]:
        async with await Cluster.connect(three.bootstrap) as cluster:
            answer = await cluster.to_broker(
                1, ApiKey.READ_METRICS, 0, patterns=("*sessionstate",), after_name=name, after_labels=labels
            )
        return [one.labels[0].value for one in answer.samples]

    whole = asyncio.run(ask(""))
    name = "kafka_server_sessionexpirelistener_sessionstate"
    assert whole == sorted(whole) and len(whole) > 2
    assert asyncio.run(ask(name, whole[0])) == whole[1:]
    assert asyncio.run(ask(name, "\uffff")) == asyncio.run(ask("zzz")) == []


def test_watched_in_a_pipe(three: RunningCluster) -> None:
    words = ("metrics", "*leadercount", "--broker", "1", "--watch", "--every", "50ms", "-B", three.bootstrap)
    with started(*words) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert [line["broker"] for line in lines] == [1, 1, 1]
