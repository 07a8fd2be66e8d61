"""What `klog status` finds: each rule from facts made by hand, one trouble at a time; the whole over a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klog.admin.group_lag import LagRow
from klog.admin.health.findings import Finding, causes, in_order
from klog.admin.health.group_looks import GroupLook
from klog.admin.health.group_rules import groups
from klog.admin.health.rules import judge
from klog.admin.health.screen import summary
from klog.admin.health.snapshot import NO_METADATA, CertificateFact, ServerFact, Snapshot
from klog.admin.health.verdict import count_partitions, verdict
from klog.admin.log_dirs import LogDirFact
from klog.admin.quarantine import LostRow
from klog.client.metadata import BrokerNode, Metadata, PartitionNode, TopicNode
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.groups import Member
from klog.coordination.server_size import ServerSize
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import UsageError
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each
from tests.tools.verbs import check, make_topic, send
from tests.zookeeper_proxy import ZooKeeperProxy

NOW_MS = 1_700_000_000_000
SETTINGS: dict[str, str | None] = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "leader.imbalance.per.broker.percentage": "10",
}


def well() -> Snapshot:
    """Three brokers, one topic of three partitions, all as it should be."""
    partitions = {
        number: PartitionNode(number, replicas[0], 4, replicas, tuple(sorted(replicas)))
        for number, replicas in enumerate([(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    }
    brokers = {number: BrokerNode(number, "h", 9000 + number, None) for number in (1, 2, 3)}
    metadata = Metadata("c", 1, brokers, {"t": TopicNode("t", "id", False, partitions)}, {})
    return Snapshot(
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


def change_partition(snapshot: Snapshot, number: int, **values: object) -> None:
    topic = snapshot.metadata.topics["t"]
    partitions = dict(topic.partitions)
    partitions[number] = partitions[number]._replace(**values)  # type: ignore[arg-type]
    snapshot.metadata = snapshot.metadata._replace(topics={"t": topic._replace(partitions=partitions)})


def kill(snapshot: Snapshot, broker: int) -> None:
    """A broker is gone and its partitions are led by others."""
    snapshot.metadata = snapshot.metadata._replace(
        brokers={number: node for number, node in snapshot.metadata.brokers.items() if number != broker}
    )
    snapshot.registered = (snapshot.registered or set()) - {broker}
    del snapshot.settings[broker]
    for number, one in snapshot.metadata.topics["t"].partitions.items():
        isr = tuple(each for each in one.isr if each != broker)
        change_partition(snapshot, number, isr=isr, leader=isr[0] if one.leader == broker else one.leader)


def kinds(snapshot: Snapshot, max_lag: int | None = None) -> list[str]:
    return [one.kind for one in judge(snapshot, max_lag)]


def test_all_is_well() -> None:
    assert judge(well(), 0) == []


Trouble = Callable[[Snapshot], object]


def has(**facts: Any) -> Trouble:
    """A snapshot has these facts."""

    def change(snapshot: Snapshot) -> None:
        for name, value in facts.items():
            setattr(snapshot, name, value)

    return change


def partition(number: int, **values: object) -> Trouble:
    """Partition ``number`` of topic t is so."""
    return lambda snapshot: change_partition(snapshot, number, **values)


def default(name: str, value: str, *brokers: int) -> Trouble:
    """A setting of all brokers, or of these."""
    return lambda snapshot: [snapshot.settings[one].update({name: value}) for one in brokers or (1, 2, 3)]


def adding(number: int, *brokers: int) -> Trouble:
    """A reassignment adds replicas on these brokers."""
    return lambda snapshot: snapshot.topics["t"].adding.update({number: brokers})


def server(number: int, *facts: Any) -> Trouble:
    """A server of ZooKeeper is so."""
    return lambda snapshot: snapshot.servers.__setitem__(number, ServerFact(f"z{number}:2181", *facts))


def log_dir(*facts: Any) -> Trouble:
    return lambda snapshot: snapshot.log_dirs.append(LogDirFact(*facts))


def lost(leader_epoch: int | None, reason: str, end: str, *, broker: int = 2) -> Trouble:
    """Offsets 10 to 90 of partition 0 are lost on a broker."""
    return has(lost=[LostRow("t", 0, broker, 10, 90, leader_epoch, reason, None, 80, f"00000000000000000010.{end}")])


def both(*troubles: Trouble) -> Trouble:
    return lambda snapshot: [one(snapshot) for one in troubles]


def share_hosts(snapshot: Snapshot) -> None:
    """Partition 0 is on one host alone; of the others no host has two replicas."""
    hosts = {1: "x", 2: "x", 3: "y", 4: "z"}
    snapshot.metadata = snapshot.metadata._replace(
        brokers={number: BrokerNode(number, host, 9000 + number, None) for number, host in hosts.items()}
    )
    snapshot.registered = set(hosts)
    snapshot.settings[4] = dict(SETTINGS)
    change_partition(snapshot, 0, replicas=(1, 2), isr=(1, 2))
    change_partition(snapshot, 1, replicas=(2, 3), isr=(2, 3))
    change_partition(snapshot, 2, leader=3, replicas=(3, 1), isr=(1, 3))


def collide(snapshot: Snapshot) -> None:
    topic = snapshot.metadata.topics["t"]
    snapshot.metadata = snapshot.metadata._replace(topics={"t": topic, "a.b": topic, "a_b": topic})


def no_controller(snapshot: Snapshot) -> None:
    snapshot.metadata = snapshot.metadata._replace(controller_id=None)


offline = partition(1, leader=None, isr=(9,))
unpreferred = partition(0, leader=2)
under_min_isr = partition(2, isr=(3,))
at_min_isr = partition(2, isr=(3, 1))
above_factor = has(min_isr={"t": 4})
uneven = partition(0, replicas=(1, 2), isr=(1, 2))
silent = has(silent={2: "no answer to DescribeConfigs within 10 s"})
hangs = has(silent={2: "no answer to ApiVersions within 2.5 s"}, hung={2: "h:9002"})
cut = lost(4, "cut", "lost")
deleting = has(deletions={"t": NOW_MS - 60_000})
server_down = server(1, None, "Connection refused")
down = has(metadata=NO_METADATA, no_brokers="no broker answers")
gone_zookeeper = has(no_zookeeper="connection refused")
large_batches = both(
    has(max_bytes={"t": 5_000_000, "u": 1_000}),
    default("socket.request.max.bytes", "100000000", 1),
    default("socket.request.max.bytes", "1000000", 2),
    default("replica.fetch.max.bytes", "1048576", 2),
)
ends_soon = has(certificates=[CertificateFact(1, "SSL", 29.9, 30), CertificateFact(2, "SSL", 30.1, 30)])
ahead = has(ahead_max_ms={"t": 3_600_000}, ahead={TopicPartition("t", 1): (88, 253_402_000_000_000)})


@each(
    ("expected", "trouble"),
    [
        ("offline-partitions", offline),
        ("unpreferred-leaders", unpreferred),
        ("under-min-isr under-replicated", under_min_isr),
        ("min-isr-above-factor", above_factor),
        ("under-min-isr min-isr-above-factor under-replicated", both(above_factor, at_min_isr)),
        ("at-min-isr under-replicated", at_min_isr),
        ("under-replicated", both(at_min_isr, adding(2, 2))),  # being filled
        ("sizes-differ sizes-differ", large_batches),
        ("uneven-replication-factor", uneven),
        ("no-controller", no_controller),
        ("silent-broker", silent),
        ("unregistered-broker", has(registered={1, 2})),
        ("unknown-broker", has(registered={1, 2, 3, 4})),
        ("log-dir-offline", log_dir(2, "/other", "KAFKA_STORAGE_ERROR")),
        ("log-dir-full", log_dir(1, "/full", None, 114_688)),
        ("certificate-ends", ends_soon),
        ("certificate-ends", has(certificates=[CertificateFact(3, "SASL_SSL", -0.5, 0)])),
        ("damage", lost(None, "magic 7", "damaged")),
        ("lost", cut),
        ("timestamps-ahead", ahead),
        ("deletion-stalls", deleting),
        ("reassignment-stalls", adding(1, 9)),
        ("reassignment-stalls", both(adding(1, 3), has(standing_still={TopicPartition("t", 1): [3]}))),
        ("colliding-names", collide),
        ("shared-hosts", share_hosts),
        ("auto-create", default("default.replication.factor", "4")),
        ("auto-create", default("default.replication.factor", "1")),
        ("differing-settings", default("min.insync.replicas", "1", 3)),
        ("zookeeper-down", server_down),
        ("zookeeper-heap", server(2, "follower", None, ServerSize(1_300_000, 152 << 20, 742 << 20))),
    ],
)
def test_each_trouble_is_found_and_nothing_else(expected: str, trouble: Trouble) -> None:
    snapshot = well()
    trouble(snapshot)
    assert kinds(snapshot) == expected.split()
    for one in judge(snapshot):
        assert one.what and one.found and one.expected and one.do


def test_a_dead_broker_is_one_finding_beside_its_partitions() -> None:
    snapshot = well()
    kill(snapshot, 3)
    found = judge(snapshot)
    assert {one.kind for one in found} == {"dead-broker", "under-replicated", "at-min-isr"}
    assert [one.because for one in found] == [None, "broker 3", "broker 3"]
    (shown,) = causes(found)
    (felt,) = shown.consequences  # one that is worse about the same partitions says the other
    assert shown.kind == "dead-broker" and felt.startswith("3 partitions ") and felt.endswith(": t (3)")
    dead = next(one for one in found if one.kind == "dead-broker")
    assert (dead.severity, dead.what) == ("critical", "broker 3") and "3 replicas" in dead.found
    assert next(one for one in found if one.kind == "under-replicated").do == "start broker 3"


def test_a_broker_that_has_just_died_and_is_still_registered_is_dead_and_nothing_else() -> None:
    snapshot = well()
    kill(snapshot, 3)
    snapshot.registered = {1, 2, 3}
    assert kinds(snapshot) == ["dead-broker", "at-min-isr", "under-replicated"]


@each(("broker", "help_"), [(1, "elect "), (2, "wait: ")])
def test_a_hole_is_filled_from_a_replica_that_has_the_messages(broker: int, help_: str) -> None:
    snapshot = well()
    lost(None, "magic 7", "damaged", broker=broker)(snapshot)
    (one,) = judge(snapshot)
    assert one.do.startswith(help_)
    change_partition(snapshot, 0, replicas=(broker,), isr=(broker,), leader=broker)
    assert any(one.kind == "damage" and "lost show" in one.do for one in judge(snapshot))


def two_dead() -> Snapshot:
    snapshot = well()
    kill(snapshot, 2)
    kill(snapshot, 3)
    return snapshot


def test_two_dead_brokers_are_one_cause_and_all_that_they_do_is_its_consequence() -> None:
    snapshot = two_dead()
    found = judge(snapshot)
    assert [one.what for one in causes(found)] == ["brokers 2,3"]
    assert {one.because for one in found[1:]} == {"brokers 2,3"} and "6 replicas" in found[0].found
    assert [one.split(":")[0].split()[0] for one in found[0].consequences] == ["3"]
    assert verdict(snapshot, found).word == "BROKEN"
    assert count_partitions(snapshot) == (1, 3, 3, 0, 3, 0)


@each(
    ("trouble", "word"),
    [
        (lambda snapshot: None, "OK"),
        (down, "DOWN"),
        (offline, "BROKEN"),
        (under_min_isr, "BROKEN"),
        (gone_zookeeper, "AT RISK"),
        (at_min_isr, "AT RISK"),
        (silent, "AT RISK"),
        (hangs, "BROKEN"),
        (unpreferred, "WARNING"),
    ],
)
def test_the_verdict_is_the_worst_that_users_feel(trouble: Trouble, word: str) -> None:
    snapshot = well()
    trouble(snapshot)
    found = verdict(snapshot, judge(snapshot))
    assert found.word == word and bool(found.said) == (word != "OK")


def test_a_wrong_chroot_is_not_a_zookeeper_that_has_lost_its_data() -> None:
    snapshot = well()
    snapshot.other_cluster = ""
    (empty,) = judge(snapshot)
    assert "zookeeper rebuild" in empty.do
    snapshot.own_zookeeper = "z:2181/klog"
    (wrong,) = judge(snapshot)
    assert "`klog status -z z:2181/klog`" in wrong.do and "rebuild" not in wrong.do
    assert (empty.kind, wrong.severity) == ("zookeeper-empty", "critical")


def test_a_chroot_that_has_no_cluster_is_no_zookeeper_that_is_down() -> None:
    snapshot = well()
    down(snapshot)
    gone_zookeeper(snapshot)
    of_one_that_is_down = verdict(snapshot, ())
    snapshot.no_chroot, snapshot.zookeeper_do = True, "z:2181/klog"
    (found,) = (one for one in judge(snapshot) if one.kind == "no-zookeeper")
    assert found.do == snapshot.zookeeper_do
    assert verdict(snapshot, ()).said != of_one_that_is_down.said


def test_a_part_that_could_not_be_asked_is_null_for_machines() -> None:
    snapshot = well()
    assert summary(snapshot, [])["groups"] is None, "they were not asked"
    down(snapshot)
    gone_zookeeper(snapshot)
    about = summary(snapshot, judge(snapshot))
    assert {name for name, value in about.items() if value is None} >= {"brokers", "zookeeper", "partitions", "groups"}


def test_of_two_dead_brokers_one_hangs() -> None:
    snapshot = two_dead()
    snapshot.hung_addresses, snapshot.located = ["h:9003"], {2: "h:9002", 3: "h:9003"}
    found = {one.what: one for one in judge(snapshot)}
    assert "kill -CONT" in found["broker 3"].do and "h:9003" in found["broker 3"].found
    assert found["broker 2"].do.startswith("start it") and "h:9003" not in found["broker 2"].found
    snapshot.located = {}
    found = {one.what: one for one in judge(snapshot)}
    assert "kill -CONT" in found["broker 2"].do == found["broker 3"].do, "which one hangs is not known"


def test_no_advice_that_would_be_refused() -> None:
    snapshot = well()
    kill(snapshot, 3)
    dead = next(one for one in judge(snapshot) if one.kind == "dead-broker")
    assert "remove-broker" not in dead.do, "two brokers cannot have three replicas"
    snapshot = well()
    change_partition(snapshot, 0, isr=(2,), leader=2)
    unpreferred = next(one for one in judge(snapshot) if one.kind == "unpreferred-leaders")
    assert unpreferred.do.startswith("wait until broker 1 is in sync")
    snapshot = well()
    uneven(snapshot)
    kill(snapshot, 3)
    assert "--replication-factor 2" in next(one for one in judge(snapshot) if one.kind.startswith("uneven")).do


def test_causes_of_causes() -> None:
    def found(what: str, because: str | None = None, severity: str = "warning") -> Finding:
        return Finding(severity, what, "f", "e", "d", f"kind-{what}", because)

    every = [found("a", "b"), found("x"), found("b", "c"), found("c", None, "critical"), found("d", "gone")]
    assert [(one.what, one.because, len(one.consequences)) for one in in_order(every)] == [
        ("c", None, 2), ("a", "c", 0), ("b", "c", 0), ("x", None, 0), ("d", None, 0),
    ]  # fmt: skip
    circle = in_order([found("a", "b"), found("b", "a")])
    assert [one.because for one in circle] == [None, None]


def read(
    offset: int | None, *bounds: int | None, lag: int | None = None, waits_ms: int | None = None,
    committed_ms: int = NOW_MS, topic: str = "t", partition: int = 0,
) -> LagRow:  # fmt: skip
    """What group g, which has a member, has committed."""
    committed = None if offset is None else datetime.fromtimestamp(committed_ms / 1000, UTC)
    start, end = bounds or (None, None)
    return LagRow("g", topic, partition, offset, start, end, lag, None, waits_ms, "m1", committed)


def test_members_of_groups() -> None:
    snapshot = well()
    look = GroupLook("g", (Member("m1", None, None), Member("m2", None, None)), since_ms=NOW_MS - 3_600_000)
    snapshot.group_looks = [replace(look, idle=("m2",))]
    assert kinds(snapshot) == ["idle-members"]
    snapshot.group_looks = [replace(look, unowned=(TopicPartition("t", 1),))]
    assert kinds(snapshot) == ["unowned-partitions"]
    snapshot.group_looks = [replace(look, gone=("old",))]
    (gone,) = judge(snapshot)
    assert (gone.kind, "topic create old" in gone.do) == ("topic-gone", True)
    snapshot.deleted.add("old")
    assert "topic restore old" in judge(snapshot)[0].do
    snapshot.group_looks = [replace(look, members=())]
    assert kinds(snapshot) == [], "nothing is unread"
    snapshot.groups = [read(5, 0, 9, lag=2)]
    assert kinds(snapshot) == ["no-member"]
    snapshot.group_looks = [replace(look, members=(), since_ms=NOW_MS - 60_000)]
    assert kinds(snapshot) == [], "a consumer that is restarted"
    snapshot.group_looks = [look]
    snapshot.groups = [read(5, 0, 9, lag=2, waits_ms=4_000_000)]
    assert kinds(snapshot) == ["group-far-behind"]
    snapshot.groups = [read(5, 0, 9, lag=2, waits_ms=4_000_000, committed_ms=NOW_MS - 400_000)]
    assert kinds(snapshot) == ["group-stopped"]
    snapshot.groups = []
    snapshot.group_looks = [replace(look, unowned=(TopicPartition("t", 1),), since_ms=NOW_MS - 1_000)]
    assert kinds(snapshot) == [], "a rebalance may be under way"
    snapshot.group_looks = [look]
    snapshot.groups = [read(None, 2, 200)]
    assert kinds(snapshot) == ["never-committed"]
    snapshot.group_looks = [replace(look, since_ms=NOW_MS - 1_000)]
    assert kinds(snapshot) == []
    snapshot.groups = [read(5, 2, 200, lag=3, waits_ms=600_000, committed_ms=NOW_MS - 600_000)]
    assert kinds(snapshot) == ["group-stopped"]
    change_partition(snapshot, 0, leader=None, isr=(9,))
    stopped = next(one for one in judge(snapshot) if one.kind == "group-stopped")
    assert stopped.because == "topic t"
    snapshot.groups = [read(5, topic="gone")]
    gone = next(one for one in judge(snapshot) if one.kind == "offset-without-topic")
    assert "group delete" not in gone.do, "a group with members cannot be deleted"


def test_offline_says_which_broker_to_start() -> None:
    snapshot = well()
    kill(snapshot, 3)
    change_partition(snapshot, 2, leader=None, isr=(3,))
    found = next(one for one in judge(snapshot) if one.kind == "offline-partitions")
    assert found.do.startswith("start broker 3:")
    assert "partitions 2 (1 of 3)" in found.found


def test_a_deletion_that_waits_for_a_broker_names_it() -> None:
    snapshot = well()
    kill(snapshot, 3)
    deleting(snapshot)
    (one,) = [one for one in judge(snapshot) if one.kind == "deletion-stalls"]
    assert one.do.startswith("start broker 3:")
    assert one.do.endswith("with an empty log dir too")
    hangs(snapshot)
    (one,) = [one for one in judge(snapshot) if one.kind == "deletion-stalls"]
    assert "brokers 2,3 back" in one.do and "empty" not in one.do, "broker 2 is not to lose its log dir"
    snapshot.deletions = {"t": NOW_MS - 1_000}
    assert "deletion-stalls" not in kinds(snapshot)


@each(
    ("nodes", "heap_mib", "expected"),
    [(1_300_000, 3072, []), (1_300_000, 2048, ["warning"]), (1_300_000, 640, ["critical"]), (0, 0, [])],
)
def test_what_zookeeper_keeps_is_held_against_its_heap(nodes: int, heap_mib: int, expected: list[str]) -> None:
    snapshot = well()
    server(0, "standalone", None, ServerSize(nodes, 152 << 20, heap_mib << 20))(snapshot)
    assert [one.severity for one in judge(snapshot)] == expected


def test_zookeeper_without_quorum_is_critical() -> None:
    snapshot = well()
    server_down(snapshot)
    assert [one.severity for one in judge(snapshot)] == ["warning"]
    snapshot.servers[0] = ServerFact("z0:2181", "read-only", None)
    assert [one.severity for one in judge(snapshot)] == ["critical"] * 2


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
    snapshot = well()
    snapshot.groups = [read(offset, 2, 200, lag=lag)]
    assert kinds(snapshot, max_lag) == expected
    snapshot.groups = [read(5, topic="gone")]
    assert kinds(snapshot) == ["offset-without-topic"]
    snapshot.groups = [read(5, partition=99)]
    assert kinds(snapshot) == ["offset-without-partition"]


def test_a_group_whose_members_could_not_be_read_is_not_told_to_have_none() -> None:
    snapshot = well()
    snapshot.groups = [read(5, 0, 9, lag=2, committed_ms=NOW_MS - 3_600_000), read(5, topic="gone")]
    (one,) = judge(snapshot)
    assert one.kind == "offset-without-topic" and "group delete" not in one.do


def test_a_member_that_has_never_committed_is_not_well() -> None:
    snapshot = well()
    snapshot.group_looks = [GroupLook("g", (Member("m1", None, None),), since_ms=NOW_MS - 1_000)]
    snapshot.groups = [read(None, 2, 200)]
    assert kinds(snapshot, 100) == ["never-committed"]
    assert kinds(snapshot) == [], "it has just begun"
    snapshot.groups.append(read(5, 2, 200, partition=1))
    assert kinds(snapshot, 100) == [], "it commits where it has read something"
    snapshot.groups[0] = read(None, 2, 200, lag=101)
    assert kinds(snapshot, 100) == ["lag"], "and not here"


def test_a_member_of_quiet_partitions_is_well_unless_its_group_is_asked_about() -> None:
    snapshot = well()
    members = (Member("m1", None, None), Member("m2", None, None))
    snapshot.group_looks = [GroupLook("g", members, since_ms=NOW_MS - 3_600_000)]
    snapshot.groups = [read(None, 2, 200), replace(read(5, 2, 200, partition=1), owner="m2")]
    assert kinds(snapshot) == []
    assert [one.kind for one in groups(snapshot, alone=True)] == kinds(snapshot, 100) == ["never-committed"]


def test_a_group_that_somebody_asks_about_has_less_time() -> None:
    snapshot = well()
    look = GroupLook("g", (Member("m1", None, None),), idle=("m2",), since_ms=NOW_MS - 1_000)
    snapshot.group_looks = [look]
    snapshot.groups = [read(None, 2, 200)]
    assert kinds(snapshot) == []
    assert [one.kind for one in groups(snapshot, alone=True)] == ["never-committed", "idle-members"]


def test_leaders_to_elect_are_one_finding_and_no_advice_to_elect_a_broker_that_hangs() -> None:
    snapshot = well()
    change_partition(snapshot, 0, leader=3)
    change_partition(snapshot, 1, leader=3)
    (found,) = judge(snapshot)
    assert (found.what, found.kind) == ("brokers 1,2", "unpreferred-leaders") and " 2 of 2 " in found.found
    silent(snapshot)
    assert [(one.kind, one.what) for one in causes(judge(snapshot))] == [
        ("silent-broker", "broker 2"),
        ("unpreferred-leaders", "broker 1"),
    ]


def test_only_what_is_asked_for_is_judged() -> None:
    snapshot = well()
    cut(snapshot)
    unpreferred(snapshot)
    server_down(snapshot)
    for asked, kind in (("topics", "lost"), ("brokers", "unpreferred-leaders"), ("zookeeper", "zookeeper-down")):
        assert kinds(replace(snapshot, asked=(asked,))) == [kind]


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

    ran = klog("status", "-B", broker.bootstrap, "-o", "json")
    assert ran.code == 1
    (row,) = json.loads(ran.stdout)["rows"]
    assert (row["severity"], row["what"], row["kind"]) == ("warning", f"topic {topic}-strict", "min-isr-above-factor")
    plugin = klog("status", "--nagios", "-B", broker.bootstrap)
    assert (plugin.code, plugin.stdout.split(" - ")[0]) == (1, "KLOG WARNING")
    assert klog("status", "brokers", "--nagios", "-B", broker.bootstrap).code == 0

    broker.kill()
    assert [one.kind for one in found(broker.bootstrap, broker.zookeeper)] == ["no-brokers"]
    dead = klog("status", "--nagios", "-B", broker.bootstrap)
    assert (dead.code, dead.stdout.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_topic_that_is_being_created_is_not_offline(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = make_broker().start()
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(lambda: [found(broker.bootstrap, None, "topics") for _ in range(4)])
        number = 0
        while not looking.done():
            number += 1
            created = client.create_topics([NewTopic(f"{topic}-{number}-{one}", 3, 1) for one in range(2)])
            for one in created.values():
                one.result(20)
        assert not any(looking.result())


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
    assert klog("status", "broker", "one").code == 2


def test_without_zookeeper_the_brokers_still_answer(
    zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    host, _, port = zookeeper.address.partition(":")
    proxy = ZooKeeperProxy((host, int(port)))
    broker = make_broker(chroot=f"{proxy.address}/{topic}").start()
    make_topic(broker.bootstrap, topic)
    proxy.close()
    kinds_found = {one.kind: one for one in found(broker.bootstrap, None)}
    gone = {"no-zookeeper", "zookeeper-down"}
    assert gone <= kinds_found.keys() <= {*gone, "no-controller"}
    assert kinds_found["zookeeper-down"].severity == "critical"
