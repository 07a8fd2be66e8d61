"""Acts in ZooKeeper: written with their change, read back, bounded, and the oldest forgotten."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin.acts import recent_acts
from klog.coordination import acts, paths
from klog.coordination.acts import STATE_BYTES_MAX, UNDO_CLIENT, Actor, forget_oldest, is_act_id, new_act, new_id
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.errors import NodeExists, ZooKeeperError
from klog.server.events import BATCH_EVENTS_MAX


def test_an_act_is_read_as_it_was_written(registry: ZooKeeper) -> None:
    act = new_act("topic-settings", Actor("ops \u00fc", "10.0.0.7"), topic="t", before={"a": "1"}, after={})
    registry.commit([act.write])
    assert acts.read(registry, acts.list_ids(registry)) == [act]
    assert acts.find(registry, act.act_id) == act
    assert acts.find(registry, "0" * 12) is None and acts.find(registry, "../x") is None


def test_an_act_is_there_with_its_change_or_not_at_all(registry: ZooKeeper) -> None:
    act = new_act("topic-settings", Actor("c", "h"), topic="t")
    registry.create("/there", b"")
    with pytest.raises(NodeExists):
        registry.commit([act.write, Create("/there", b"")])
    assert acts.list_ids(registry) == []


def test_the_oldest_acts_are_forgotten(registry: ZooKeeper) -> None:
    made = [new_act("topic-create", Actor("c", "h"), topic=f"t{number}") for number in range(7)]
    for act in made:
        registry.commit([act.write])
    assert forget_oldest(registry, kept_max=4) == 3
    assert acts.list_ids(registry) == sorted(act.act_id for act in made)[3:]
    assert forget_oldest(registry, kept_max=4) == 0


def test_the_acts_of_a_busy_host_do_not_push_out_those_of_others(registry: ZooKeeper) -> None:
    acted = [("10.0.0.7", 3), ("10.0.0.8", 6), ("10.0.0.7", 1)]
    made = [new_act("topic-create", Actor("c", host), topic="t") for host, times in acted for _ in range(times)]
    for act in made:
        registry.commit([act.write])
    assert forget_oldest(registry, kept_max=6) == 4
    left = acts.read(registry, acts.list_ids(registry))
    assert sorted(act.actor.host for act in left) == ["10.0.0.7"] * 3 + ["10.0.0.8"] * 3


def test_what_the_cluster_does_for_itself_is_no_news(registry: ZooKeeper) -> None:
    for actor in (Actor("c", "h"), Actor("controller", acts.OF_CLUSTER)):
        registry.commit([new_act("topic-create", actor, topic="t").write])
    found, in_all = recent_acts(registry, 0, 20)
    assert ([one.principal for one in found], in_all) == (["c@h"], 1)


def test_acts_are_bounded_in_bytes(registry: ZooKeeper) -> None:
    long = {"after": {"a": "x" * 10_000}}
    made = [
        new_act("topic-create", Actor("c", host), topic="t", **given)  # type: ignore[arg-type]
        for host, given in [("few", {}), ("many", long), ("many", long), ("many", long)]
    ]
    for act in made:
        registry.commit([act.write])
    assert forget_oldest(registry, kept_bytes_max=25_000) == 1
    left = acts.read(registry, acts.list_ids(registry))
    assert sorted(act.actor.host for act in left) == ["few", "many", "many"]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":1}', b'{"time":1,"kind":"k","client":"c","host":"h","topic":5}']
)
def test_a_node_that_is_not_an_act_is_named(registry: ZooKeeper, data: bytes) -> None:
    path = paths.act(new_id(1))
    registry.create(path, data)
    with pytest.raises(ZooKeeperError, match=path):
        acts.read(registry, acts.list_ids(registry))


def test_what_does_not_fit_is_left_out() -> None:
    act = new_act("topic-create", Actor("c" * 5000, "h"), topic="t", after={"a": "x" * STATE_BYTES_MAX})
    assert act.after is None and act.before is None
    assert len(act.write.data) < 1000


def test_an_event_of_an_act_is_short() -> None:
    """200 events make one batch, which must not be larger than `message.max.bytes`."""
    short = new_act("topic-settings", Actor("c", "h"), topic="t", before={"a": "1"}, after={})
    assert (short.event()["act"], short.event()["what"]) == (short.act_id, "topic-settings")
    assert short.event()["before"] == {"a": "1"}
    long = new_act("topic-create", Actor("\u00fc" * 500, "h"), topic="t" * 249, after={"a": "x" * 3000})
    assert long.after is not None and "after" not in long.event()
    assert BATCH_EVENTS_MAX * len(json.dumps(long.event())) < 1024 * 1024


def test_an_undo_names_its_act() -> None:
    first = new_act("topic-settings", Actor("c", "h"), topic="t")
    assert first.undoes is None
    assert new_act("topic-settings", Actor(UNDO_CLIENT + first.act_id, "h"), topic="t").undoes == first.act_id
    assert Actor(UNDO_CLIENT + "no act", "h").undoes is None


@given(st.lists(st.integers(10**12, 36**8 - 1), min_size=2, max_size=5, unique=True))
def test_ids_sort_by_time(times_ms: list[int]) -> None:
    ids = [new_id(one) for one in times_ms]
    assert all(map(is_act_id, ids))
    assert [one for _, one in sorted(zip(times_ms, ids, strict=True))] == sorted(ids)
