"""Where a group goes on reading: to every kind of position, to what a file says, and back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from klog.admin import offset_files, rewind
from klog.admin.rewind import Plan
from klog.client.positions import parse_position
from klog.coordination import committed
from klog.coordination.committed import CommittedOffset
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import GroupIdNotFound, Refused, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from tests.admin.group_registry import commit
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, run, send_at

TIMES_MS = [1_700_000_000_000 + 1000 * number for number in range(20)]


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    """A topic of two partitions; 20 messages in the first, a second apart, in batches of five."""
    make_topic(broker.bootstrap, topic, 2, retention_ms="-1")
    send_at(broker.bootstrap, topic, TIMES_MS, in_batches_of=5)
    return topic


def planned(
    broker: RunningBroker, registry: ZooKeeper, group: str, to: str, parse: Any = parse_position, **options: Any
) -> Plan:
    return run(broker.bootstrap, lambda cluster: rewind.plan_rewind(cluster, registry, group, parse(to), **options))


shifted = partial(planned, parse=rewind.parse_shift)


def carried_out(broker: RunningBroker, registry: ZooKeeper, plan: Plan) -> None:
    run(broker.bootstrap, lambda cluster: rewind.carry_out(cluster, registry, plan))


def test_by_counts_from_what_is_committed(broker: RunningBroker, registry: ZooKeeper, filled: str) -> None:
    group, first, second = f"{filled}-g", TopicPartition(filled, 0), TopicPartition(filled, 1)

    def at(index: int) -> int:
        """The offset of a message of the first partition."""
        found = planned(broker, registry, group, f"+{index}", topics=[filled], partitions=[0], create=True)
        new = found.wanted[first]
        assert new is not None
        return new.offset

    offsets = [at(index) for index in range(21)]
    commit(registry, group, {first: offsets[7]})
    wanted = {"-3": 4, "-1": 6, "+1": 8, "+13": 20, "+99": 20, "-99": 0, "-2s": 5, "+5s": 12, "-1h": 0, "+1h": 20}
    for by, index in wanted.items():
        plan = shifted(broker, registry, group, by, topics=[filled], partitions=[0])
        assert {name: one and one.offset for name, one in plan.wanted.items()} == {first: offsets[index]}, by
        assert bool(plan.notes) == (by in ("+99", "-99")), (by, plan.notes)
        assert sum(row.messages or 0 for row in plan.rows) == index - 7, by
    commit(registry, group, {second: 0})
    both = shifted(broker, registry, group, "-3")
    assert {name.partition: one and one.offset for name, one in both.wanted.items()} == {0: offsets[4], 1: 0}
    assert any(str(second) in note for note in both.notes), "it has no messages to go back by"
    alone = shifted(broker, registry, group, "+1", topics=[filled], partitions=[0])
    assert list(alone.wanted) == [first]
    with pytest.raises(Refused):
        shifted(broker, registry, group, "-3", topics=[make_other(broker, filled)])


def make_other(broker: RunningBroker, topic: str) -> str:
    make_topic(broker.bootstrap, f"{topic}-other")
    return f"{topic}-other"


@pytest.mark.parametrize("text", ["10", "", "-", "+", "--3", "-x", "-1h2", "+1e3", "-9" * 12, "-\u0663"])
def test_what_is_no_shift_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        rewind.parse_shift(text)


def test_a_rewind_that_would_go_forward_or_set_one_offset_everywhere_is_refused(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    group = f"{filled}-g"
    commit(registry, group, {TopicPartition(filled, 0): 0, TopicPartition(filled, 1): 0})
    with pytest.raises(Refused) as forward:
        planned(broker, registry, group, "-5")
    assert "--by -5" in str(forward.value.hint)
    with pytest.raises(UsageError) as several:
        planned(broker, registry, group, "5", topics=[filled])
    assert "-p" in str(several.value.hint)
    assert planned(broker, registry, group, "5", topics=[filled], partitions=[0]).wanted


def test_every_kind_of_position_and_how_much_is_between(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    group = f"{filled}-g"
    where = planned(broker, registry, group, "+10", topics=[filled], create=True).rows[0].new
    end = planned(broker, registry, group, "end", topics=[filled], create=True).rows[0].new
    assert where is not None and end is not None
    commit(registry, group, {TopicPartition(filled, 0): where})
    expected = {
        "start": (-10, 0),
        "end": (10, end),
        "+0": (-10, 0),
        "+3": (-7, None),
        "-15": (-5, None),
        "-20": (-10, 0),
        f"@{TIMES_MS[12]}": (2, None),
        f"@{TIMES_MS[9] + 1}": (0, where),
        "0": (-10, 0),
        str(end): (10, end),
    }
    for position, (messages, offset) in expected.items():
        plan = planned(broker, registry, group, position, topics=[filled], partitions=[0])
        (row,) = plan.rows
        assert (row.prior, row.messages) == (where, messages), position
        assert offset is None or row.new == offset, position
        assert row.new is not None and row.delta == row.new - where
        assert plan.notes == [], position


def test_what_the_log_does_not_have_is_moved_with_a_word(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    group = f"{filled}-g"
    end = planned(broker, registry, group, "end", topics=[filled], create=True).rows[0].new
    assert end is not None
    commit(registry, group, {TopicPartition(filled, 0): end})
    for position, words in {
        "99999999": "offset 99999999 ",
        "+21": " 20 messages",
        "-21": " 20 messages",
        "@2100-01-01": "time",
    }.items():
        plan = planned(broker, registry, group, position, topics=[filled], partitions=[0])
        assert words in plan.notes[0], position
        assert plan.notes[0].startswith(f"{filled}-0: ")
        assert plan.rows[0].note == plan.notes[0]
        assert plan.rows[0].new in (0, planned(broker, registry, group, "end").rows[0].new)


def test_all_partitions_of_all_topics_that_the_group_knows(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    """Also those in which it has committed nothing yet: it would begin there wherever its settings say."""
    group = f"{filled}-g"
    commit(registry, group, {TopicPartition(filled, 0): 7, TopicPartition(f"{filled}-gone", 0): 3})
    plan = planned(broker, registry, group, "start")
    assert [(row.topic, row.partition, row.prior, row.new, row.delta) for row in plan.rows] == [
        (filled, 0, 7, 0, -7),
        (filled, 1, None, 0, None),
    ]
    assert len(plan.notes) == 1 and f"{filled}-gone" in plan.notes[0]
    carried_out(broker, registry, plan)
    found = committed.read(registry, group)
    assert {name.partition: one.offset for name, one in found.items() if name.topic == filled} == {0: 0, 1: 0}
    assert found[TopicPartition(f"{filled}-gone", 0)].offset == 3


def test_names_that_are_not_there(broker: RunningBroker, registry: ZooKeeper, filled: str) -> None:
    group = f"{filled}-g"
    with pytest.raises(GroupIdNotFound, match=group):
        planned(broker, registry, group, "start", topics=[filled])
    commit(registry, group, {TopicPartition(f"{filled}-gone", 0): 3})
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        planned(broker, registry, group, "start", topics=["nowhere"])
    with pytest.raises(UnknownTopicOrPartition, match=r"\b2 partitions \(0 to 1\).* 5,9"):
        planned(broker, registry, group, "start", topics=[filled], partitions=[0, 9, 5])
    with pytest.raises(UsageError, match="partitions"):
        planned(broker, registry, group, "start", partitions=[0])
    with pytest.raises(UsageError, match="new group"):
        planned(broker, registry, "new", "start", create=True)
    with pytest.raises(Refused, match="topic"):
        planned(broker, registry, group, "start")


def test_a_file_about_what_is_not_there_and_past_the_ends(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    text = f"g,{filled},0,999999\ng,{filled},7,1\ng,{filled}-no,0,1\nh,{filled},1,0\n"
    lines, _ = offset_files.parse(text)

    plans, bad = run(broker.bootstrap, lambda cluster: rewind.plan_lines(cluster, registry, lines))
    assert [one.number for one in bad] == [2, 3]
    assert [one.group for one in plans] == ["g", "h"]
    assert "end" in plans[0].notes[0]
    assert plans[0].rows[0].new is not None and plans[0].rows[0].new < 999999


def test_who_says_nothing_but_the_offset_leaves_the_rest(
    broker: RunningBroker, registry: ZooKeeper, filled: str
) -> None:
    group, one = f"{filled}-g", TopicPartition(filled, 0)
    commit(registry, group, {one: CommittedOffset(0, 3, "a note")})
    plan = planned(broker, registry, group, "0", topics=[filled], partitions=[0])
    assert plan.changes == {}
    carried_out(broker, registry, plan)
    assert committed.read(registry, group)[one].metadata == "a note"


def test_a_copy_is_of_everything_and_goes_over_nothing(broker: RunningBroker, registry: ZooKeeper, filled: str) -> None:
    source, target, one = f"{filled}-g", f"{filled}-h", TopicPartition(filled, 0)
    commit(registry, source, {one: CommittedOffset(5, 0, "a note")})

    def copy(a: str, b: str) -> Plan:
        return run(broker.bootstrap, lambda cluster: rewind.plan_copy(cluster, registry, a, b))

    carried_out(broker, registry, copy(source, target))
    found = committed.read(registry, target)[one]
    assert (found.offset, found.leader_epoch, found.metadata) == (5, 0, "a note")
    with pytest.raises(Refused, match=r"\b1 partition"):
        copy(source, target)
    with pytest.raises(UsageError, match="itself"):
        copy(source, source)
    with pytest.raises(GroupIdNotFound):
        copy(f"{filled}-nobody", "x")
