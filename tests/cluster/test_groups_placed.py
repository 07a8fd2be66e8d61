"""Coordinators are placed over the brokers that live, and move with them: what FindCoordinator says on every broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from klog.coordination import group_slots, paths
from klog.coordination.group_slots import SlotHolder, slot_of
from klog.protocol.apis import ApiKey
from klog.server.handlers.find_coordinator import PATIENCE_S
from tests.cluster.load import produce
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_fixture import session_of

Record = Callable[[str, object], None]
SESSION_S = 30.0
FAR_BELOW_THE_SESSION_S = 20.0

BY_SLOT = {slot_of(f"group-{number}"): f"group-{number}" for number in range(1000)}
"""A group for each slot."""


def coordinators(cluster: RunningCluster, broker_id: int) -> dict[int, int]:
    """Slot -> who coordinates it by what this broker says; -1: nobody."""
    asked = {"key_type": 0, "coordinator_keys": list(BY_SLOT.values())}
    answer = cluster.ask(broker_id, ApiKey.FIND_COORDINATOR, 4, **asked)
    where = {one.key: one for one in answer.coordinators}
    found = {}
    for slot, group in BY_SLOT.items():
        one = where[group]
        found[slot] = int(one.node_id)
        if one.node_id >= 0:
            assert f"{one.host}:{one.port}" == cluster.brokers[int(one.node_id)].bootstrap
            assert int(one.error_code.value) == 0
        else:
            assert int(one.error_code.value) == 15
    return found


def wait_until_spread(cluster: RunningCluster, *broker_ids: int) -> dict[int, int]:
    """Until all that answer say the same: every slot with one of these brokers, evenly."""

    def even() -> bool:
        said = [coordinators(cluster, one) for one in cluster.answering]
        count = Counter(said[0].values())
        return (
            all(one == said[0] for one in said)
            and count.keys() == set(broker_ids)
            and max(count.values()) - min(count.values()) <= 1
        )

    cluster.wait_until(even, f"slots with {broker_ids}")
    return coordinators(cluster, cluster.answering[0])


def stored(cluster: RunningCluster) -> dict[int, SlotHolder]:
    with session_of(cluster.zookeeper) as zookeeper:
        return group_slots.read_all(zookeeper)


def test_they_move_from_the_dead_at_once_and_back_to_who_returns(
    make_cluster: Callable[..., RunningCluster], record_property: Record
) -> None:
    """Of a broker that is controller, and of one that is not: killed, its groups have another coordinator, and what it
    led another leader, though its session lasts."""
    three = make_cluster(3, **{"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}).start()
    for victim in (three.controller(), next(one for one in three.brokers if one != three.controller())):
        others = [one for one in three.brokers if one != victim]
        topic = three.create(f"led-by-{victim}", assignment=[[victim, *others]], min_insync_replicas="2")
        before = wait_until_spread(three, 1, 2, 3)
        held = stored(three)
        begun = time.monotonic()
        three.kill(victim)
        told = coordinators(three, others[0])
        if time.monotonic() - begun < PATIENCE_S:
            assert set(told.values()) == set(others), "the first answer waits for the next coordinator"

        def moved(others: list[int] = others) -> bool:
            return all(set(coordinators(three, one).values()) == set(others) for one in others)

        three.wait_until(moved, "every group has a live coordinator")
        took_s = time.monotonic() - begun
        record_property("s_to_move", round(took_s, 3))
        assert produce(three.bootstrap, topic, [b"acknowledged by all that live"])
        assert time.monotonic() - begun < FAR_BELOW_THE_SESSION_S
        after = wait_until_spread(three, *others)
        assert {slot for slot in before if after[slot] != before[slot]} == {
            slot for slot, one in before.items() if one == victim
        }
        now = stored(three)
        for slot, one in now.items():
            has_moved = before[slot] == victim
            assert one.term == held[slot].term + has_moved
            assert one.version == held[slot].version + has_moved
        three.start(victim)
        wait_until_spread(three, 1, 2, 3)


def test_a_broker_that_shuts_down_gives_them_away_before_it_goes(three: RunningCluster) -> None:
    """Of each of its slots the last change is older than that of the registry of brokers, which was its leaving."""
    before = wait_until_spread(three, 1, 2, 3)
    leaving = next(one for one in three.brokers if one != three.controller())
    others = [one for one in three.brokers if one != leaving]
    assert three.stop(leaving) == 0
    with session_of(three.zookeeper) as zookeeper:
        gone = zookeeper.exists(paths.BROKER_IDS)
        nodes = zookeeper.get_many([paths.group_slot(slot) for slot in before])
    assert gone is not None
    for holder, node in zip(before.values(), nodes, strict=True):
        assert node is not None
        assert (node.stat.modified_zxid < gone.children_zxid) or holder != leaving
    assert all(set(coordinators(three, one).values()) == set(others) for one in others)
    three.start(leaving)
    wait_until_spread(three, 1, 2, 3)
