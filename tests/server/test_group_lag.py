"""The lag of groups on the page for Prometheus: what `klog lag` counts, bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.processes import free_port
from klog.admin import group_lag
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from klog.server import group_lag as of_server
from klog.server.group_lag import GroupLags
from tests.admin.group_registry import commit
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.hand_clock import HandClock
from tests.server.test_metrics import scrape
from tests.tools.verbs import make_topic, run, send
from tests.zookeeper_fixture import session_of


@pytest.fixture
def broker_with_page(make_broker: Callable[..., RunningBroker]) -> RunningBroker:
    return make_broker(metrics__port=str(free_port())).start()


@pytest.fixture
def registry(broker_with_page: RunningBroker) -> Iterator[ZooKeeper]:
    with session_of(broker_with_page.zookeeper) as session:
        yield session


def page(broker: RunningBroker) -> dict[tuple[str, str, str], float]:
    """Metric, group, partition -> value, of the lines that are about groups' lag."""
    return {
        (name, known["group"], known["partition"]): value
        for (name, labels), value in scrape(broker).items()
        if name.startswith("klog_group_lag_") and (known := dict(labels))
    }


def test_the_page_has_what_group_lag_counts(broker_with_page: RunningBroker, registry: ZooKeeper) -> None:
    broker = broker_with_page
    make_topic(broker.bootstrap, "t", 2)
    send(broker.bootstrap, "t", b"".join(b"%d\n" % one for one in range(50)), partition=0)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    commit(registry, "begins", {first: 0, second: 0})
    commit(registry, "set-back", {first: -2})
    commit(registry, "beyond", {first: 1_000_000})
    commit(registry, "elsewhere", {TopicPartition("no-such-topic", 0): 1})
    found = page(broker)
    assert {key[1:]: value for key, value in found.items() if key[0] == "klog_group_lag_messages"} == {
        ("begins", "0"): 50, ("begins", "1"): 0, ("beyond", "0"): 0,
    }  # fmt: skip
    (row, _) = run(broker.bootstrap, lambda cluster: group_lag.lag(cluster, registry, ["begins"]))
    assert (row.lag, row.lag_bytes) == (50, found["klog_group_lag_bytes", "begins", "0"])
    assert 0 <= found["klog_group_lag_ms", "begins", "0"] <= (row.lag_ms or 0)
    rows = klog("metrics", "klog_group_lag_messages", "-B", broker.bootstrap, "-o", "json").rows
    assert {(one["labels"]["group"], one["labels"]["partition"]): one["value"] for one in rows} == {
        ("begins", "0"): 50, ("begins", "1"): 0, ("beyond", "0"): 0,
    }  # fmt: skip


class TickingClock(HandClock):
    """A second later at each look."""

    def monotonic_s(self) -> float:
        self.move(1.0)
        return super().monotonic_s()


@pytest.fixture
def five_groups(zookeeper: Any, topic: str) -> Iterator[ZooKeeper]:
    """``g0`` to ``g4``, in a registry of their own."""
    with session_of(f"{zookeeper.address}/{topic}", create_chroot=True) as session:
        for number in range(5):
            commit(session, f"g{number}", {TopicPartition("t", 0): 0})
        yield session


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A partition behind whose offsets there is one message."""
    monkeypatch.setattr(GroupLags, "_behind", lambda *_: (1, 1, None))
    return {TopicPartition("t", 0): None}


@pytest.mark.parametrize("name", ["GROUPS_MAX", "LAGS_MAX"])
def test_a_reading_is_bounded(five_groups: ZooKeeper, led: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lags = GroupLags(five_groups, led, HandClock())
    assert ([one.group for one in lags.read()], lags.is_cut) == (["g0", "g1", "g2", "g3", "g4"], False)
    monkeypatch.setattr(of_server, name, 3)
    assert ([one.group for one in lags.read()], lags.is_cut) == (["g0", "g1", "g2"], True)


def test_a_reading_that_took_long_is_kept_for_longer(five_groups: ZooKeeper, led: Any) -> None:
    lags = GroupLags(five_groups, led, TickingClock())
    assert len(lags.read()) == 5
    commit(five_groups, "g5", {TopicPartition("t", 0): 0})
    assert [len(lags.read()) for _ in range(10)] == [5] * 9 + [6]
