"""What `klog check` finds: each rule from facts made by hand, one trouble at a time; the whole over a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from klog.admin.check import SUBJECTS, check, judge
from klog.admin.check_certificates import CertificateFact
from klog.admin.check_facts import Facts, LogDirFact, ServerFact
from klog.admin.check_groups import GroupLook, GroupOffset
from klog.admin.findings import Finding, folded, in_order
from klog.admin.quarantine import LostRow
from klog.client.metadata import BrokerNode, Metadata, PartitionNode, TopicNode
from klog.coordination import embedded
from klog.coordination.server_size import ServerSize
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import UsageError
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each
from tests.tools.verbs import make_topic, send
from tests.zookeeper_fixture import klog_home

NOW_MS = 1_700_000_000_000
SETTINGS: dict[str, str | None] = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "leader.imbalance.per.broker.percentage": "10",
}


def well() -> Facts:
    """Three brokers, one topic of three partitions, all as it should be."""
    partitions = {
        number: PartitionNode(number, replicas[0], 4, replicas, tuple(sorted(replicas)))
        for number, replicas in enumerate([(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    }
    brokers = {number: BrokerNode(number, "h", 9000 + number, None) for number in (1, 2, 3)}
    metadata = Metadata("c", 1, brokers, {"t": TopicNode("t", "id", False, partitions)}, {})
    return Facts(
        now_ms=NOW_MS,
        metadata=metadata,
        min_isr={"t": 2},
        settings={number: dict(SETTINGS) for number in brokers},
        log_dirs=[LogDirFact(number, "/data", None, 1 << 40) for number in brokers],
        servers=[ServerFact(f"z{number}:2181", "follower", None) for number in range(3)],
        registered={1, 2, 3},
        has_controller=True,
        topics={"t": Topic("t", UUID(int=1), {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}, 0, 0)},
    )


def change_partition(facts: Facts, number: int, **values: object) -> None:
    assert facts.metadata is not None
    topic = facts.metadata.topics["t"]
    partitions = dict(topic.partitions)
    partitions[number] = partitions[number]._replace(**values)  # type: ignore[arg-type]
    facts.metadata = facts.metadata._replace(topics={"t": topic._replace(partitions=partitions)})


def kill(facts: Facts, broker: int) -> None:
    """A broker is gone and its partitions are led by others."""
    assert facts.metadata is not None
    facts.metadata = facts.metadata._replace(
        brokers={number: node for number, node in facts.metadata.brokers.items() if number != broker}
    )
    facts.registered = (facts.registered or set()) - {broker}
    del facts.settings[broker]
    for number, one in facts.metadata.topics["t"].partitions.items():
        isr = tuple(each for each in one.isr if each != broker)
        change_partition(facts, number, isr=isr, leader=isr[0] if one.leader == broker else one.leader)


def kinds(facts: Facts, max_lag: int | None = None) -> list[str]:
    return [one.kind for one in judge(facts, SUBJECTS, max_lag)]


def test_all_is_well() -> None:
    assert judge(well(), SUBJECTS, 0) == []


def offline(facts: Facts) -> None:
    change_partition(facts, 1, leader=None, isr=(9,))


def unpreferred(facts: Facts) -> None:
    change_partition(facts, 0, leader=2)


def under_min_isr(facts: Facts) -> None:
    change_partition(facts, 2, isr=(3,))


def above_factor(facts: Facts) -> None:
    facts.min_isr["t"] = 4


def above_factor_and_under_it(facts: Facts) -> None:
    facts.min_isr["t"] = 4
    change_partition(facts, 2, isr=(3, 1))


def at_min_isr(facts: Facts) -> None:
    change_partition(facts, 2, isr=(3, 1))


def being_filled(facts: Facts) -> None:
    change_partition(facts, 2, isr=(3, 1))
    facts.topics["t"].adding[2] = (2,)


def large_batches(facts: Facts) -> None:
    facts.max_bytes = {"t": 5_000_000, "u": 1_000}
    facts.sizes = {
        1: {"socket.request.max.bytes": "100000000", "fetch.max.bytes": "50000000"},
        2: {"socket.request.max.bytes": "1000000", "replica.fetch.max.bytes": "1048576"},
    }


def uneven(facts: Facts) -> None:
    change_partition(facts, 0, replicas=(1, 2), isr=(1, 2))


def no_controller(facts: Facts) -> None:
    assert facts.metadata is not None
    facts.metadata = facts.metadata._replace(controller_id=None)


def silent(facts: Facts) -> None:
    facts.silent[2] = "no answer to DescribeConfigs within 10 s"


def not_registered(facts: Facts) -> None:
    facts.registered = {1, 2}


def not_known(facts: Facts) -> None:
    facts.registered = {1, 2, 3, 4}


def dir_offline(facts: Facts) -> None:
    facts.log_dirs.append(LogDirFact(2, "/other", "KAFKA_STORAGE_ERROR"))


def dir_full(facts: Facts) -> None:
    facts.log_dirs[0] = LogDirFact(1, "/data", None, 114_688)


def certificate_ends(facts: Facts) -> None:
    facts.certificates = [CertificateFact(1, "SSL", 29.9, 30), CertificateFact(2, "SSL", 30.1, 30)]


def certificate_has_ended(facts: Facts) -> None:
    facts.certificates = [CertificateFact(3, "SASL_SSL", -0.5, 0)]


def damaged(facts: Facts) -> None:
    facts.lost = [LostRow("t", 0, 2, 10, 90, None, "magic 7", None, 80, "00000000000000000010.damaged")]


def cut(facts: Facts) -> None:
    facts.lost = [LostRow("t", 0, 2, 10, 90, 4, "cut", None, 80, "00000000000000000010.lost")]


def ahead(facts: Facts) -> None:
    facts.ahead_max_ms = {"t": 3_600_000}
    facts.ahead = {TopicPartition("t", 1): (88, 253_402_000_000_000)}


def deleting(facts: Facts) -> None:
    facts.deletions = {"t": NOW_MS - 60_000}


def made_again(facts: Facts) -> None:
    facts.trashed = {"t": UUID(int=9), "gone": UUID(int=8)}


def stalls(facts: Facts) -> None:
    facts.topics["t"].adding[1] = (9,)


def stands_still(facts: Facts) -> None:
    facts.topics["t"].adding[1] = (3,)
    facts.standing_still[TopicPartition("t", 1)] = [3]


def share_hosts(facts: Facts) -> None:
    """Partition 0 is on one host alone; of the others no host has two replicas."""
    assert facts.metadata is not None
    hosts = {1: "x", 2: "x", 3: "y", 4: "z"}
    facts.metadata = facts.metadata._replace(
        brokers={number: BrokerNode(number, host, 9000 + number, None) for number, host in hosts.items()}
    )
    facts.registered = set(hosts)
    facts.settings[4] = dict(SETTINGS)
    change_partition(facts, 0, replicas=(1, 2), isr=(1, 2))
    change_partition(facts, 1, replicas=(2, 3), isr=(2, 3))
    change_partition(facts, 2, leader=3, replicas=(3, 1), isr=(1, 3))


def collide(facts: Facts) -> None:
    assert facts.metadata is not None
    topic = facts.metadata.topics["t"]
    facts.metadata = facts.metadata._replace(topics={"t": topic, "a.b": topic, "a_b": topic})


def auto_factor(facts: Facts) -> None:
    for settings in facts.settings.values():
        settings["default.replication.factor"] = "4"


def auto_minimum(facts: Facts) -> None:
    for settings in facts.settings.values():
        settings["default.replication.factor"] = "1"


def differ(facts: Facts) -> None:
    facts.settings[3]["min.insync.replicas"] = "1"


def server_down(facts: Facts) -> None:
    facts.servers[1] = ServerFact("z1:2181", None, "Connection refused")


def zookeeper_fills_up(facts: Facts) -> None:
    facts.servers[2] = ServerFact("z2:2181", "follower", None, ServerSize(1_300_000, 152 << 20, 742 << 20))


@each(
    ("trouble", "expected"),
    [
        (offline, ["offline-partitions"]),
        (unpreferred, ["unpreferred-leaders"]),
        (under_min_isr, ["under-min-isr", "under-replicated"]),
        (above_factor, ["min-isr-above-factor"]),
        (above_factor_and_under_it, ["under-min-isr", "min-isr-above-factor", "under-replicated"]),
        (at_min_isr, ["at-min-isr", "under-replicated"]),
        (being_filled, ["under-replicated"]),
        (large_batches, ["sizes-differ", "sizes-differ"]),
        (uneven, ["uneven-replication-factor"]),
        (no_controller, ["no-controller"]),
        (silent, ["silent-broker"]),
        (not_registered, ["unregistered-broker"]),
        (not_known, ["unknown-broker"]),
        (dir_offline, ["log-dir-offline"]),
        (dir_full, ["log-dir-full"]),
        (certificate_ends, ["certificate-ends"]),
        (certificate_has_ended, ["certificate-ends"]),
        (damaged, ["damage"]),
        (cut, ["lost"]),
        (ahead, ["timestamps-ahead"]),
        (deleting, ["deletion-stalls"]),
        (made_again, ["made-again"]),
        (stalls, ["reassignment-stalls"]),
        (stands_still, ["reassignment-stalls"]),
        (collide, ["colliding-names"]),
        (share_hosts, ["shared-hosts"]),
        (auto_factor, ["auto-create"]),
        (auto_minimum, ["auto-create"]),
        (differ, ["differing-settings"]),
        (server_down, ["zookeeper-down"]),
        (zookeeper_fills_up, ["zookeeper-heap"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_trouble_is_found_and_nothing_else(trouble: Callable[[Facts], None], expected: list[str]) -> None:
    facts = well()
    trouble(facts)
    assert kinds(facts) == expected
    for one in judge(facts, SUBJECTS):
        assert one.what and one.found and one.expected and one.do


def test_a_dead_broker_is_one_finding_beside_its_partitions() -> None:
    facts = well()
    kill(facts, 3)
    found = judge(facts, SUBJECTS)
    assert {one.kind for one in found} == {"dead-broker", "under-replicated", "at-min-isr"}
    assert [one.because for one in found] == [None, "broker 3", "broker 3"] and found[0].consequences == 2
    (shown,) = folded(found)
    assert shown.kind == "dead-broker" and "2 consequences" in shown.found and "1 at-min-isr" in shown.found
    dead = next(one for one in found if one.kind == "dead-broker")
    assert (dead.severity, dead.what) == ("critical", "broker 3") and "3 replicas" in dead.found
    assert next(one for one in found if one.kind == "under-replicated").do == "start broker 3"


def test_a_broker_that_has_just_died_and_is_still_registered_is_dead_and_nothing_else() -> None:
    facts = well()
    kill(facts, 3)
    facts.registered = {1, 2, 3}
    assert kinds(facts) == ["dead-broker", "at-min-isr", "under-replicated"]


@each(("broker", "help_"), [(1, "elect "), (2, "wait: ")])
def test_a_hole_is_filled_from_a_replica_that_has_the_messages(broker: int, help_: str) -> None:
    facts = well()
    facts.lost = [LostRow("t", 0, broker, 10, 90, None, "magic 7", None, 80, "00000000000000000010.damaged")]
    (one,) = judge(facts, SUBJECTS)
    assert one.do.startswith(help_)
    change_partition(facts, 0, replicas=(broker,), isr=(broker,), leader=broker)
    assert any(one.kind == "damage" and "lost show" in one.do for one in judge(facts, SUBJECTS))


def test_of_two_dead_brokers_one_hangs() -> None:
    facts = well()
    kill(facts, 2)
    kill(facts, 3)
    facts.hung_addresses, facts.located = ["h:9003"], {2: "h:9002", 3: "h:9003"}
    found = {one.what: one for one in judge(facts, SUBJECTS)}
    assert "kill -CONT" in found["broker 3"].do and "h:9003" in found["broker 3"].found
    assert found["broker 2"].do.startswith("start it") and "h:9003" not in found["broker 2"].found
    facts.located = {}
    found = {one.what: one for one in judge(facts, SUBJECTS)}
    assert "kill -CONT" in found["broker 2"].do == found["broker 3"].do, "which one hangs is not known"


def test_no_advice_that_would_be_refused() -> None:
    facts = well()
    kill(facts, 3)
    dead = next(one for one in judge(facts, SUBJECTS) if one.kind == "dead-broker")
    assert "remove-broker" not in dead.do, "two brokers cannot have three replicas"
    facts = well()
    change_partition(facts, 0, isr=(2,), leader=2)
    unpreferred = next(one for one in judge(facts, SUBJECTS) if one.kind == "unpreferred-leaders")
    assert unpreferred.do.startswith("wait until broker 1 is in sync")
    facts = well()
    uneven(facts)
    kill(facts, 3)
    assert "--replication-factor 2" in next(one for one in judge(facts, SUBJECTS) if one.kind.startswith("uneven")).do


def test_causes_of_causes() -> None:
    def found(what: str, because: str | None = None, severity: str = "warning") -> Finding:
        return Finding(severity, what, "f", "e", "d", f"kind-{what}", because)

    every = [found("a", "b"), found("x"), found("b", "c"), found("c", None, "critical"), found("d", "gone")]
    assert [(one.what, one.because, one.consequences) for one in in_order(every)] == [
        ("c", None, 2), ("a", "c", 0), ("b", "c", 0), ("x", None, 0), ("d", None, 0),
    ]  # fmt: skip
    circle = in_order([found("a", "b"), found("b", "a")])
    assert [one.because for one in circle] == [None, None]


def test_members_of_groups() -> None:
    facts = well()
    look = GroupLook("g", ("m1", "m2"), since_ms=NOW_MS - 3_600_000)
    facts.group_looks = [replace(look, idle=("m2",))]
    assert kinds(facts) == ["idle-members"]
    facts.group_looks = [replace(look, unowned=(TopicPartition("t", 1),))]
    assert kinds(facts) == ["unowned-partitions"]
    facts.group_looks = [replace(look, unowned=(TopicPartition("t", 1),), since_ms=NOW_MS - 1_000)]
    assert kinds(facts) == [], "a rebalance may be under way"
    facts.group_looks = [look]
    facts.groups = [GroupOffset("g", TopicPartition("t", 0), None, 2, 200, None)]
    assert kinds(facts) == ["never-committed"]
    facts.group_looks = [replace(look, since_ms=NOW_MS - 1_000)]
    assert kinds(facts) == []
    facts.groups = [GroupOffset("g", TopicPartition("t", 0), 5, 2, 200, 3, 600_000)]
    assert kinds(facts) == ["group-stopped"]
    change_partition(facts, 0, leader=None, isr=(9,))
    stopped = next(one for one in judge(facts, SUBJECTS) if one.kind == "group-stopped")
    assert stopped.because == "topic t"
    facts.groups = [GroupOffset("g", TopicPartition("gone", 0), 5, None, None, None)]
    gone = next(one for one in judge(facts, SUBJECTS) if one.kind == "offset-without-topic")
    assert "group delete" not in gone.do, "a group with members cannot be deleted"


def test_offline_says_which_broker_to_start() -> None:
    facts = well()
    kill(facts, 3)
    change_partition(facts, 2, leader=None, isr=(3,))
    found = next(one for one in judge(facts, SUBJECTS) if one.kind == "offline-partitions")
    assert found.do.startswith("start broker 3:")
    assert "partitions 2 (1 of 3)" in found.found


def test_a_deletion_that_waits_for_a_broker_names_it() -> None:
    facts = well()
    kill(facts, 3)
    deleting(facts)
    (one,) = [one for one in judge(facts, SUBJECTS) if one.kind == "deletion-stalls"]
    assert one.do.startswith("start broker 3:")
    facts.deletions = {"t": NOW_MS - 1_000}
    assert "deletion-stalls" not in kinds(facts)


@pytest.mark.long("tests/cluster/test_clocks.py")
@pytest.mark.slow
def test_a_message_from_ahead_of_the_clock_is_named(broker: RunningBroker, topic: str) -> None:
    """It was taken while the topic allowed it."""
    make_topic(broker.bootstrap, topic, 3, message_timestamp_after_max_ms=str(2**62))
    lines = b"".join(b'{"value": "x", "timestamp": %d}\n' % one for one in (NOW_MS, 253_402_000_000_000, NOW_MS))
    send(broker.bootstrap, topic, lines, input="jsonl", partition=1)

    def findings() -> list[Finding]:
        found = asyncio.run(check(broker.bootstrap, None, ["topics"]))
        return [one for one in found if one.what == f"topic {topic}"]

    assert findings() == []  # as the topic's owner wants it
    assert klog("topic", "config", topic, "message.timestamp.after.max.ms=3600000", "-B", broker.bootstrap).code == 0
    (one,) = findings()
    assert (one.severity, one.kind) == ("warning", "timestamps-ahead")
    assert "(1 of 3)" in one.found
    assert " 9999-" in one.found
    shown = klog(*one.do.split("`")[1].split()[1:], "-B", broker.bootstrap)
    assert (shown.code, shown.stdout) == (0, "x\n")


@each(
    ("nodes", "heap_mib", "expected"),
    [(1_300_000, 3072, []), (1_300_000, 2048, ["warning"]), (1_300_000, 640, ["critical"]), (0, 0, [])],
)
def test_what_zookeeper_keeps_is_held_against_its_heap(nodes: int, heap_mib: int, expected: list[str]) -> None:
    facts = well()
    facts.servers[0] = ServerFact("z0:2181", "standalone", None, ServerSize(nodes, 152 << 20, heap_mib << 20))
    assert [one.severity for one in judge(facts, ["zookeeper"])] == expected


def test_zookeeper_without_quorum_is_critical() -> None:
    facts = well()
    server_down(facts)
    assert [one.severity for one in judge(facts, ["zookeeper"])] == ["warning"]
    facts.servers[0] = ServerFact("z0:2181", "read-only", None)
    assert [one.severity for one in judge(facts, ["zookeeper"])] == ["critical"] * 2


@each(
    ("offset", "lag", "max_lag", "expected"),
    [
        (5, 100, None, []),
        (5, 100, 99, ["lag"]),
        (5, 100, 100, []),
        (1, 100, None, ["offset-below-start"]),
        (300, 0, None, ["offset-behind-end"]),
        (5, None, 0, []),
    ],
)
def test_groups(offset: int, lag: int | None, max_lag: int | None, expected: list[str]) -> None:
    facts = well()
    facts.groups = [GroupOffset("g", TopicPartition("t", 0), offset, 2, 200, lag)]
    assert kinds(facts, max_lag) == expected
    facts.groups = [GroupOffset("g", TopicPartition("gone", 0), 5, None, None, None)]
    assert kinds(facts) == ["offset-without-topic"]
    facts.groups = [GroupOffset("g", TopicPartition("t", 99), 5, None, None, None)]
    assert kinds(facts) == ["offset-without-partition"]


def test_a_member_that_has_never_committed_is_not_well() -> None:
    facts = well()
    facts.groups = [GroupOffset("g", TopicPartition("t", 0), None, 2, 200, None)]
    assert kinds(facts, 100) == ["never-committed"]
    assert kinds(facts) == []


def test_only_what_is_asked_for_is_judged() -> None:
    facts = well()
    cut(facts)
    unpreferred(facts)
    server_down(facts)
    assert [one.kind for one in judge(facts, ["topics"])] == ["lost"]
    assert [one.kind for one in judge(facts, ["brokers"])] == ["unpreferred-leaders"]
    assert [one.kind for one in judge(facts, ["zookeeper"])] == ["zookeeper-down"]


# --- With a real broker -----------------------------------------------------------------------------------------------


def found(bootstrap: str | None, zookeeper: str | None, *subjects: str, **more: int) -> list[Finding]:
    return asyncio.run(check(bootstrap, zookeeper, subjects, timeout_s=5.0, **more))


def test_a_real_cluster_from_either_address(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker().start()
    make_topic(broker.bootstrap, topic, partitions=2)
    assert found(broker.bootstrap, None) == []
    assert found(None, broker.zookeeper) == []
    make_topic(broker.bootstrap, f"{topic}-strict", min_insync_replicas="2")
    assert [one.kind for one in found(broker.bootstrap, None)] == ["min-isr-above-factor"]
    assert found(broker.bootstrap, None, "brokers", "zookeeper") == []

    ran = klog("check", "-B", broker.bootstrap, "-o", "json")
    assert ran.code == 1
    (row,) = json.loads(ran.stdout)["rows"]
    assert (row["severity"], row["what"], row["kind"]) == ("warning", f"topic {topic}-strict", "min-isr-above-factor")
    plugin = klog("check", "--nagios", "-B", broker.bootstrap)
    assert (plugin.code, plugin.stdout.split(" - ")[0]) == (1, "KLOG WARNING")
    assert klog("check", "brokers", "--nagios", "-B", broker.bootstrap).code == 0

    broker.kill()
    assert [one.kind for one in found(broker.bootstrap, broker.zookeeper)] == ["no-brokers"]
    dead = klog("check", "--nagios", "-B", broker.bootstrap)
    assert (dead.code, dead.stdout.count("\n")) == (2, 1)


def test_whoever_makes_a_topic_with_fewer_replicas_than_acks_all_is_to_have_is_warned(
    broker: RunningBroker, topic: str
) -> None:
    made = klog("topic", "create", topic, "-X", "min.insync.replicas=2", "-B", broker.bootstrap)
    assert made.code == 0
    assert "min.insync.replicas" in made.stderr and topic in made.stderr and " 2" in made.stderr
    assert "warning" not in klog("topic", "create", f"{topic}-b", "-B", broker.bootstrap).stderr


def test_a_groups_offsets_in_zookeeper(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker().start()
    make_topic(broker.bootstrap, topic)
    receipt = send(broker.bootstrap, topic, b"a\nb\nc\nd\n", batch_messages=1)
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        session.create(f"/consumers/g/offsets/{topic}/0", b"0", parents=True)
        session.create("/consumers/g/offsets/no-such-topic/0", b"7", parents=True)
        session.create("/consumers/h/owners", b"", parents=True)
    assert receipt.messages == 4
    lagging = {one.kind: one.found for one in found(broker.bootstrap, None, "groups", max_lag=3)}
    assert lagging == {"lag": "lags by 4 messages", "offset-without-topic": "no such topic"}
    assert [one.kind for one in found(broker.bootstrap, None, "groups", max_lag=4)] == ["offset-without-topic"]


def test_wait_ends_when_all_is_well(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    broker.kill()

    async def run() -> list[Finding]:
        waiting = asyncio.create_task(check(broker.bootstrap, None, wait_s=60, timeout_s=5.0))
        await asyncio.to_thread(broker.start)
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(run()) == []


def test_wrong_words_are_wrong_usage() -> None:
    with pytest.raises(UsageError):
        found("host:no-port", None)
    assert klog("check", "everything").code == 2


@pytest.mark.slow
def test_without_zookeeper_the_brokers_still_answer(tmp_path: Path, topic: str) -> None:
    server = embedded.start(tmp_path / "zookeeper", cache=klog_home() / "cache")
    try:
        server.await_serving()
        broker = RunningBroker(tmp_path / "broker", f"{server.address}/own")
        try:
            broker.start()
            make_topic(broker.bootstrap, topic)
            server.stop()
            kinds_found = {one.kind: one for one in found(broker.bootstrap, None)}
            assert (
                {"no-zookeeper", "zookeeper-down"}
                <= kinds_found.keys()
                <= {
                    "no-zookeeper",
                    "zookeeper-down",
                    "no-controller",
                }
            )
            assert kinds_found["zookeeper-down"].severity == "critical"
        finally:
            broker.kill()  # stopping in order would wait for ZooKeeper
    finally:
        server.stop()
