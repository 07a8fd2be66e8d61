"""What the brokers of a cluster show to Prometheus while one dies; and that the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from klog.server.events import TOPIC
from klog.server.metrics_table import METRICS
from tests.cluster.load import produce, read
from tests.cluster_fixture import RunningCluster
from tests.server.test_metrics import Scrape, free_port, scrape, value

ROOT = Path(__file__).resolve().parent.parent.parent
DASHBOARD = ROOT / "docs" / "grafana" / "klog-dashboard.json"
CONTROLLERS = "kafka_controller_kafkacontroller_activecontrollercount"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"


def asked_by_dashboard() -> list[str]:
    """Every expression of it."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    queries = [one["query"]["query"] for one in dashboard["templating"]["list"] if isinstance(one["query"], dict)]
    notes = [one["expr"] for one in dashboard["annotations"]["list"]]
    return queries + notes + [one["expr"] for panel in dashboard["panels"] for one in panel.get("targets", [])]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|klog|process)_[a-z0-9_]+\b", expression))


@pytest.mark.long("a bench smoke")
def test_a_cluster_that_loses_a_broker(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3)
    ports = {one: free_port() for one in cluster.brokers}
    for one, broker in cluster.brokers.items():
        broker.settings["metrics.port"] = str(ports[one])
    cluster.start()

    def scraped() -> dict[int, Scrape]:
        return {one: scrape(ports[one]) for one in cluster.answering}

    def total(name: str) -> float:
        return sum(value(found, name) for found in scraped().values())

    cluster.create("t", assignment=[[1, 2, 3]], min_insync_replicas="2")
    cluster.wait_until(lambda: cluster.leader_of(TOPIC) > 0, "there is a story")
    cluster.wait_in_sync(TOPIC)
    produce(cluster.bootstrap, "t", [b"x" * 1000] * 50)
    read(cluster.bootstrap, "t")
    member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "measured"})
    member.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    member.close()

    found = scraped()
    assert sum(value(one, CONTROLLERS) for one in found.values()) == 1
    assert value(found[cluster.controller()], CONTROLLERS) == 1
    assert total("kafka_controller_kafkacontroller_activebrokercount") == 3
    assert total("kafka_server_replicamanager_leadercount") == 2
    assert total(UNDER_REPLICATED) == 0
    taken = value(found[1], "kafka_server_brokertopicmetrics_bytesin_total", topic="t")
    assert taken > 50_000
    for follower in (2, 3):
        assert value(found[follower], "kafka_server_brokertopicmetrics_replicationbytesin_total") >= taken
        assert value(found[follower], "kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
        assert ("kafka_server_brokertopicmetrics_bytesin_total", (("topic", "t"),)) not in found[follower]
    assert value(found[1], "kafka_server_brokertopicmetrics_replicationbytesout_total") >= 2 * taken
    assert value(found[1], "kafka_network_requestmetrics_requests_total", request="ReplicaFetch") > 0

    assert total("klog_group_slots") == 64
    assert total("klog_group_committimems_count") == 1

    shown = {name for one in found.values() for name, _ in one}
    for expression in asked_by_dashboard():
        assert names_in(expression), expression
        assert names_in(expression) <= shown, expression

    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    cluster.kill(1)
    cluster.wait_for_leader("t", other_than=1)
    cluster.wait_until(lambda: cluster.isr_of("t") == {2, 3}, "the dead broker is out of sync")
    assert total(CONTROLLERS) == 1
    assert total("kafka_controller_kafkacontroller_activebrokercount") == 2
    assert total(UNDER_REPLICATED) >= 1
    assert total("kafka_server_replicamanager_atminisrpartitioncount") == 1
    assert total("kafka_server_replicamanager_underminisrpartitioncount") == 0
    assert total("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert total("kafka_controller_kafkacontroller_preferredreplicaimbalancecount") >= 1
    assert total(elections) >= 1

    cluster.start(1)
    cluster.wait_in_sync("t")
    cluster.wait_in_sync(TOPIC)
    cluster.wait_until(lambda: total(UNDER_REPLICATED) == 0, "every replica is in sync, by the metrics")
    assert total("kafka_server_replicamanager_isrexpands_total") >= 1


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert "id" not in dashboard, "an id would replace somebody's dashboard"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in dashboard["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    for number, (x, y, w, h) in enumerate(places):
        for left, top, width, height in places[number + 1 :]:
            assert x + w <= left or left + width <= x or y + h <= top or top + height <= y, "two panels in one place"


def test_what_the_page_tells_to_watch_is_there() -> None:
    shown = {metric.name for metric in METRICS}
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert shown <= names_in(page)
    watched = page[page.index("## Paging alerts") : page.index("## Every metric")]
    assert len(names_in(watched)) > 5
    assert names_in(watched) <= shown


def test_names_are_what_prometheus_takes() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.startswith(("kafka_", "klog_"))
        assert metric.doc.endswith(".")
