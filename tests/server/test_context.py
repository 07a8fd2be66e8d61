"""What the controller decides of partitions that need nothing, it finds out a shorter way: with the same outcome."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from klog.config import BrokerConfig
from klog.coordination.brokers import Broker, Registration
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.topics import Topic
from klog.names import TopicPartition
from klog.server.controller.context import Context, KnownBroker

NAME = TopicPartition("t", 0)
BROKERS = (1, 2, 3, 4)
TOPIC_ID = uuid.UUID(int=7)


@dataclass(frozen=True)
class Facts:
    """A replica's."""

    topic_id: uuid.UUID
    is_online: bool
    last_epoch: int = 0
    end_address: int = 0
    is_whole: bool = True
    was_safe: bool = True


def mostly(often: bool) -> st.SearchStrategy[bool]:
    return st.sampled_from([often] * 9 + [not often])


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    """Of one partition with replicas on three of four brokers, most of which are well."""
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"})
    context = Context(config, lambda: 0.0)
    replicas = tuple(draw(st.permutations(BROKERS))[:3])
    context.topics["t"] = Topic("t", TOPIC_ID, {0: replicas}, 0, 0)
    for one in BROKERS:
        if not draw(mostly(True)):
            continue
        known = context.brokers[one] = KnownBroker(Registration(Broker(one, "host", 9092), 100 + one, one, 0, 0))
        known.is_refused, known.is_heard = draw(mostly(False)), draw(mostly(True))
        if draw(mostly(False)):
            context.leaving.add(one)
        if draw(mostly(False)):
            known.lost = {NAME}
        if draw(mostly(True)):
            topic_id = TOPIC_ID if draw(mostly(True)) else uuid.UUID(int=8)
            facts = Facts(topic_id, draw(mostly(True)))
            known.facts = {NAME: facts} if draw(mostly(True)) else {}  # type: ignore[dict-item]
    if draw(mostly(True)):
        isr = tuple(draw(st.permutations(replicas))[: draw(st.integers(1, 3))])
        leader = draw(st.sampled_from([isr[0]] * 8 + [NO_LEADER, replicas[-1]]))
        incarnations = tuple((100 if draw(mostly(True)) else 90) + one for one in isr)
        state = PartitionState(leader, 3, isr, 5, draw(mostly(False)), 2, incarnations)
        context.take_states({NAME: state})
    context.leaderless[NAME] = "as it was"
    return context


@given(contexts())
def test_the_short_way_finds_what_the_long_one_does(context: Context) -> None:
    before = dict(context.leaderless), dict(context.waits)
    found = context.decide(NAME), context.leaderless.get(NAME), NAME in context.waits
    context.leaderless, context.waits = before
    with patch.object(Context, "_is_served", lambda *_: False):
        assert found == (context.decide(NAME), context.leaderless.get(NAME), NAME in context.waits)


def test_it_is_taken_where_all_are_well() -> None:
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"})
    context = Context(config, lambda: 0.0)
    context.topics["t"] = Topic("t", TOPIC_ID, {0: (1, 2)}, 0, 0)
    for one in (1, 2):
        context.brokers[one] = KnownBroker(Registration(Broker(one, "host", 9092), 100 + one, one, 0, 0))
    context.take_states({NAME: PartitionState(1, 3, (1, 2), 5, version=2, incarnations=(101, 102))})
    with patch.object(Context, "election_input", side_effect=AssertionError):
        assert context.decide(NAME) is None


def test_a_stray_log_is_of_the_very_topic_on_a_broker_without_a_replica_of_it() -> None:
    """What a broker had when its replica was removed, and it was away."""
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"})
    context = Context(config, lambda: 0.0)
    for topic, topic_id, replicas in (
        ("t", TOPIC_ID, (1, 2)),
        ("other", uuid.UUID(int=8), (1,)),
        ("u", TOPIC_ID, (3,)),
    ):
        context.topics[topic] = Topic(topic, topic_id, {0: replicas}, 0, 0)
    known = context.brokers[3] = KnownBroker(Registration(Broker(3, "host", 9092), 103, 3, 0, 0))
    facts = {TopicPartition(topic, 0): Facts(TOPIC_ID, True) for topic in ("t", "other", "u", "unknown")}
    known.facts = facts  # type: ignore[assignment]
    assert context.find_stray_logs(3) == {NAME}
    assert context.stray[NAME] == {3}
    context.begin_deletion(context.topics["t"])
    assert not context.is_stray(3, NAME), "its deletion removes the log"
    known.facts = {}
    assert context.find_stray_logs(3) == set() and context.stray[NAME] == set()


def test_an_in_sync_set_that_crashed_as_a_whole_is_waited_for_and_not_for_ever() -> None:
    """The first that is back looks as if it had everything, and its disk may have been set back."""
    now = 100.0
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"})
    context = Context(config, lambda: now)
    asked: list[tuple[TopicPartition, float]] = []
    context.wait_again = lambda name, wait_s: asked.append((name, wait_s))
    context.topics["t"] = Topic("t", TOPIC_ID, {0: (1, 2, 3)}, 0, 0)
    context.take_states({NAME: PartitionState(NO_LEADER, 3, (1, 2, 3), 5, version=2, incarnations=(91, 92, 93))})

    def come_back(broker_id: int) -> None:
        known = KnownBroker(Registration(Broker(broker_id, "host", 9092), 100 + broker_id, broker_id, 0, 0))
        known.is_heard, known.facts = True, {NAME: Facts(TOPIC_ID, True)}  # type: ignore[dict-item]
        context.brokers[broker_id] = known

    come_back(1)
    assert context.decide(NAME) is None and "brokers 2, 3" in context.leaderless[NAME]
    now += context.restart_wait_s - 0.1
    come_back(2)
    assert context.decide(NAME) is None and "broker 3" in context.leaderless[NAME]
    assert asked == [(NAME, context.restart_wait_s)], "another one that is back does not make it longer"
    now += 0.1
    decision = context.decide(NAME)
    assert decision is not None and decision.leader in (1, 2)
    assert len(asked) == 1 and not context.waits and NAME not in context.leaderless
