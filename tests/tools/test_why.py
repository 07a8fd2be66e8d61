"""`klog status`: causes from facts drawn by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from klog.admin.group_lag import LagRow
from klog.admin.health.findings import Finding
from klog.admin.health.local_brokers import LocalBroker, LogLine
from klog.admin.log_dirs import LogDirFact
from klog.admin.quarantine import LostRow
from klog.coordination.group_states import COORDINATOR, GroupState
from klog.coordination.groups import Group, Member
from klog.errors import GroupIdNotFound, UsageError
from klog.names import TopicPartition
from klog.tools.events import Event
from klog.tools.status import SOUGHT_MAX, first_causes
from klog.tools.where import Place
from klog.tools.why.causes import thing_of, why_broker, why_partition, why_topic
from klog.tools.why.gathering import found_about, parsed
from klog.tools.why.group_causes import GroupFacts, why_group
from klog.tools.why.message_causes import MessageFacts, why_message
from klog.tools.why.produce_causes import FLUSHES, PURGATORY, REQUESTS, Reading, pace, why_slow
from klog.tools.why.steps import Known, Step, moment, numbered
from tests.admin.test_check import NOW_MS, change_partition, kill, read, well
from tests.rows import each

DOWN: Event = {"ts": "2026-02-01T03:00:12Z", "kind": "broker-down", "broker": 1, "id": 2, "reason": "refused"}
UP: Event = {"ts": "2026-02-01T02:00:00Z", "kind": "broker-up", "broker": 1, "id": 2, "host": "h", "port": 9002}


def known(
    *events: Event, dead: tuple[int, ...] = (), hung: tuple[str, ...] = (), no_events: str | None = None
) -> Known:
    snapshot = well()
    for broker in dead:
        kill(snapshot, broker)
    ups = [one for one in events if one["kind"] == "broker-up"]
    snapshot.located = {one["id"]: f"{one['host']}:{one['port']}" for one in ups if one["id"] in dead}
    snapshot.hung_addresses = list(hung)
    return Known(snapshot, events, no_events)


def checked(steps: list[Step]) -> Step:
    """The last step; it alone says what helps."""
    assert [one.do is not None for one in steps] == [False] * (len(steps) - 1) + [True]
    return steps[-1]


def test_a_cluster_that_is_well_has_no_steps() -> None:
    for steps in (why_topic(known(), "t"), why_broker(known(), 1)):
        assert [one.do for one in steps] == [None]


def test_nothing_is_well_without_zookeeper() -> None:
    of_well = known()
    assert found_about(of_well, None, "t") == []
    of_well.snapshot.no_zookeeper = "refused"
    assert [(one.what, one.do is not None) for one in found_about(of_well, None, "t")] == [("zookeeper: refused", True)]


ELECTED: Event = {
    "ts": "2026-02-01T03:00:12Z", "kind": "leader-elected", "broker": 1, "topic": "t", "partition": 0, "leader": 1,
    "leader_epoch": 4, "isr": [1, 2, 3], "old_leader": 2, "reason": "the reason",
}  # fmt: skip


def test_of_a_partition_that_is_well_who_leads_and_since_when() -> None:
    first, since = why_partition(known(ELECTED), TopicPartition("t", 0))
    assert "broker 1 leads" in first.what and first.do is since.do is None
    assert [one.step for one in numbered([first, since])] == [1, 2]
    assert since.time is not None and since.time.hour == 3 and "the reason" in since.evidence
    _, since = why_partition(known({**ELECTED, "leader_epoch": 7}), TopicPartition("t", 0))
    assert since.time is None


def test_a_leader_whose_clock_is_wrong_takes_no_messages() -> None:
    facts = known()
    facts.snapshot.clocks = {1: 0, 2: -864_000_000, 3: 5}
    assert "broker 2 leads it, and its clock" in checked(why_topic(facts, "t")).what
    facts.snapshot.clocks = {1: 0, 2: 3, 3: 5}
    assert [one.do for one in why_topic(facts, "t")] == [None]


def test_of_two_dead_brokers_each_is_a_cause() -> None:
    steps = why_topic(known(UP, {**UP, "id": 3, "port": 9003}, DOWN, {**DOWN, "id": 3}, dead=(2, 3)), "t")
    causes = [one for one in steps if one.do is not None]
    assert [one.what for one in causes] == ["broker 2 is dead", "broker 3 is dead"]
    assert ["--id 2" in str(one.do) for one in causes] == [True, False] and "--id 3" in str(causes[1].do)


def test_a_dead_broker_is_the_cause_with_the_time_of_its_event() -> None:
    cause = checked(why_topic(known(UP, DOWN, dead=(2,)), "t"))
    assert "broker 2" in cause.what and "start broker 2" in (cause.do or "")
    assert cause.time is not None and cause.time.isoformat() == "2026-02-01T03:00:12+00:00"
    assert checked(why_broker(known(UP, DOWN, dead=(2,)), 2)).do == cause.do


def test_a_broker_that_hangs_is_not_to_be_started() -> None:
    cause = checked(why_broker(known(UP, DOWN, dead=(2,), hung=("h:9002",)), 2))
    assert "hangs" in cause.what and cause.do is not None and "kill -CONT" in cause.do


def test_another_that_hangs_does_not_make_a_dead_broker_hang() -> None:
    assert "start broker 2" in (checked(why_broker(known(UP, DOWN, dead=(2,), hung=("h:9003",)), 2)).do or "")


def test_no_leader_is_for_want_of_the_in_sync_replica() -> None:
    of = known(DOWN, dead=(2,))
    change_partition(of.snapshot, 1, leader=None, isr=(2,))
    steps = why_topic(of, "t")
    assert "t-1" in steps[0].what and "start broker 2" in (checked(steps).do or "")


def test_a_live_follower_that_is_behind_is_waited_for() -> None:
    of = known()
    change_partition(of.snapshot, 0, isr=(1, 2))
    cause = checked(why_topic(of, "t"))
    assert "broker 3" in cause.what and cause.do is not None and "start" not in cause.do


def test_unread_events_are_said() -> None:
    steps = why_broker(known(dead=(2,), no_events="the reason"), 2)
    assert any("the reason" in one.evidence for one in steps) and checked(steps).time is None


def test_subjects_are_looked_up() -> None:
    of = known(dead=(2,))
    assert thing_of(of, None, "t") == "t"
    assert thing_of(of, None, "t-0") == thing_of(of, "partition", "t-0") == TopicPartition("t", 0)
    assert thing_of(of, None, "2") == thing_of(of, "broker", "2") == 2
    for kind, name in ((None, "u"), (None, "t-9"), ("broker", "9"), ("topic", "t-0"), (None, "9" * 5000)):
        assert thing_of(of, kind, name) is None
    for words in (["gruppe", "g"], ["a", "b", "c"], *(["message", "t-0", text] for text in ("-1", "x", "٣", "9" * 30))):
        with pytest.raises(UsageError):
            parsed(words)


def test_a_message_that_is_appended_and_not_committed() -> None:
    place = Place(1, "f", 0, 100, 40, "0", "appended", 3, 4)
    of = MessageFacts(TopicPartition("t", 0), 41, 0, 40, place)
    assert "flushed" in checked(why_message(known(), of)).what
    follower = known(DOWN, dead=(2,))
    assert "start broker 2" in (checked(why_message(follower, of)).do or "")


@each(("settings", "what"), [
    ({"retention.ms": "-1", "retention.bytes": "-1"}, "DeleteRecords"),
    ({"retention.ms": "604800000", "retention.bytes": "-1"}, "retention deleted"),
    ({"retention.ms": "-1", "retention.bytes": "1000"}, "retention deleted"),
    ({"retention.ms": "x"}, "DeleteRecords"),
])  # fmt: skip
def test_a_message_below_the_log_start(settings: dict[str, str | None], what: str) -> None:
    of = MessageFacts(TopicPartition("t", 0), 3, 10, 40, None, settings)
    assert what in checked(why_message(known(), of)).what


def test_a_message_that_was_set_aside() -> None:
    here = known()
    here.snapshot.lost = [LostRow("t", 0, 2, 30, 60, 3, "unclean election", None, 30, "a.lost")]
    for offset in (30, 59):
        cause = checked(why_message(here, MessageFacts(TopicPartition("t", 0), offset, 0, 30)))
        assert "unclean election" in cause.what and cause.do is not None and "klog lost show" in cause.do
    cause = checked(why_message(here, MessageFacts(TopicPartition("t", 0), 60, 0, 30)))
    assert "not written yet" in cause.what


def test_an_in_sync_broker_that_is_silent() -> None:
    here = known()
    here.snapshot.silent[2] = "no answer"
    here.snapshot.hung[2] = "h:9002"
    cause = checked(why_topic(here, "t"))
    assert "broker 2 hangs" in cause.what
    *_, cause = why_partition(here, TopicPartition("t", 0))
    assert "broker 2 hangs" in cause.what and cause.do is not None


def test_log_dirs() -> None:
    here = known()
    here.snapshot.log_dirs = [LogDirFact(1, "/data", "KAFKA_STORAGE_ERROR"), LogDirFact(2, "/data", None, 1 << 20)]
    assert "is offline" in checked(why_broker(here, 1)).what
    assert "is full" in checked(why_broker(here, 2)).what
    assert [one.do for one in why_broker(here, 3)] == [None]
    *_, cause = why_partition(here, TopicPartition("t", 1))
    assert "is full" in cause.what and cause.do is not None


def reading(total_ms: float, part: str, times: int, flush_ms: float = 1.0, waiting: int = 0) -> Reading:
    found = {(PURGATORY, "Produce"): float(waiting)}
    for name, ms in (("total", total_ms), (part, total_ms)):
        found[f"{REQUESTS}{name}timems_count", "Produce"] = times
        found[f"{REQUESTS}{name}timems_sum", "Produce"] = times * ms
    return {**found, (f"{FLUSHES}_count", ""): times, (f"{FLUSHES}_sum", ""): times * flush_ms}


@each(("total_ms", "part", "flush_ms", "what"), [
    (900.0, "remote", 800.0, "flushes slowly"),
    (900.0, "remote", 1.0, "fetches slowly"),
    (900.0, "local", 1.0, "appends slowly"),
    (900.0, "requestqueue", 1.0, "is busy"),
    (900.0, "responsesend", 1.0, "take their answers"),
])  # fmt: skip
def test_slow_produce(total_ms: float, part: str, flush_ms: float, what: str) -> None:
    at_first = reading(1.0, part, 100)
    slow = {name: value + reading(total_ms, part, 10, flush_ms)[name] for name, value in at_first.items()}
    cause = checked(why_slow(known(), {1}, {1}, [pace(1, at_first, slow)]))
    assert what in cause.what
    quick = {name: value + reading(5.0, part, 10)[name] for name, value in at_first.items()}
    assert why_slow(known(), {1}, {1}, [pace(1, at_first, quick)]) == []
    assert why_slow(known(), {1}, {1}, [pace(1, slow, slow)]) == [], "what was slow long ago"


def test_produce_requests_that_are_not_answered() -> None:
    stuck = pace(1, reading(1.0, "remote", 100, waiting=2), reading(1.0, "remote", 100, waiting=1))
    assert "ends no flush" in checked(why_slow(known(), {1}, {1}, [stuck])).what
    here = known()
    here.snapshot.silent[2] = "no answer"
    here.snapshot.hung[2] = "h:9002"
    cause = checked(why_slow(here, {1}, {1, 2}, [stuck]))
    assert "broker 2 hangs" in cause.what


def test_the_log_of_a_broker_of_this_machine() -> None:
    said = [LogLine(moment(NOW_MS - 3_600_000), "ERROR", "log dir /a is offline: EIO"),
            LogLine(moment(NOW_MS), "INFO", "the last line")]  # fmt: skip
    here = LocalBroker("h:9002", "klog up --detach", Path("/c/broker-2.log"), tuple(said))
    of = known(UP, DOWN, dead=(2,))
    of.snapshot.here = {2: here}
    cause = checked(why_broker(of, 2))
    assert cause.do is not None and "`klog up --detach`" in cause.do
    assert not any("/c/broker-2.log" in one.evidence for one in why_broker(of, 2)), "it was an hour before"
    of.snapshot.here = {2: replace(here, log_end=(*said, LogLine(None, "ERROR", "the reason")))}
    assert any("/c/broker-2.log: the reason" in one.evidence for one in why_broker(of, 2))
    of = known()
    of.snapshot.here = {2: here}
    of.snapshot.log_dirs = [LogDirFact(2, "/a", "KAFKA_STORAGE_ERROR"), LogDirFact(2, "/b", None)]
    assert "/c/broker-2.log: log dir /a is offline: EIO" in checked(why_broker(of, 2)).evidence


def test_causes_of_findings_are_bounded() -> None:
    of = known(UP, DOWN, dead=(2,))
    dirs = [
        Finding("critical", f"broker 2, log dir /{number}", "f", "e", "d", "log-dir-offline") for number in range(50)
    ]
    settings = [Finding("warning", "topic t", "f", "e", "d", "timestamps-ahead")]
    gone = Finding("warning", "group g, partition t-0", "f", "e", "d", "lag")

    async def of_group(name: str) -> GroupFacts:
        raise GroupIdNotFound(f"group {name!r} does not exist")

    causes = asyncio.run(first_causes(of, [*settings, gone, *dirs], of_group))
    assert list(causes) == [one.what for one in dirs[: SOUGHT_MAX - 1]], "what settings say has no cause behind it"
    assert all("broker 2 " in text and "2026-02-01 03:00:12" in text for text in causes.values())


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
RECENTLY = "2023-11-14T22:10:00Z"
"""Three minutes before `NOW_MS`."""
CLIENT = {"member": "m1", "client": "c1", "host": "h1"}
EMPTIED: Event = {"ts": RECENTLY, "kind": "group-empty", "group": "g", "left": [{**CLIENT, "why": "left"}]}
HUNG: Event = {**EMPTIED, "left": [{**CLIENT, "why": "stopped answering: no heartbeat for 1 s"}]}
REFUSED: Event = {"ts": RECENTLY, "kind": "commit-refused", "group": "g", **CLIENT, "error": "ILLEGAL_GENERATION"}
LOOP: tuple[Event, ...] = ({"ts": RECENTLY, "kind": "rebalance", "group": "g", "joined": [CLIENT], "left": []},) * 5


def group(*owned: tuple[TopicPartition, ...]) -> Group:
    """Its members m1, m2, ... own these."""
    members = [Member(f"m{number}", "c", "h", of) for number, of in enumerate(owned, 1)]
    return Group(GroupState("g", group_protocol=COORDINATOR, is_assigned=True), tuple(members), {})


@each(
    ("of", "rows", "events", "what", "do"),
    [
        (group(), [read(5, 0, 9, lag=4)], (), "4 messages unread, no member", "start its consumers"),
        (group(), [read(5, 0, 9, lag=4)], (EMPTIED,), "has no member", "client c1 at h1"),
        (group(), [read(5, 0, 9, lag=4)], (HUNG,), "m1, hangs or died", "kill -CONT"),
        (group((T0, T1, T2)), [read(5, 6, 9, lag=3)], (), "t-0: retention deleted", "retention.ms"),
        (
            group((T0, T1, T2)),
            [read(5, 0, 9, lag=4, committed_ms=NOW_MS - 3_600_000)],
            (REFUSED,),
            "refuses the commits of client c1 at h1: it is fenced",
            "session.timeout.ms",
        ),
        (
            group((T0, T1, T2)),
            [],
            ({**REFUSED, "member": ""},),
            "client c1 at h1: it is not a member",
            "a group.id of its own",
        ),
        (group((T0, T1, T2)), [], LOOP, "in a loop because of client c1", "max.poll.interval.ms"),
        (group((T0, T2)), [], (), "no live consumer owns t-1", "group describe"),
        (
            group((T0, T1, T2)),
            [read(5, 0, 9, lag=4, waits_ms=60_000, committed_ms=NOW_MS - 60_000)],
            (),
            "member m1 (client c, host h) stopped committing",
            "look at its process",
        ),
    ],
)
def test_the_cause_of_a_group(of: Group, rows: list[LagRow], events: tuple[Event, ...], what: str, do: str) -> None:
    """What is wrong without a word of history are the findings of `klog status`: tests/admin/test_check.py."""
    phase = "Stable" if of.members else "Empty"
    cause = checked(why_group(known(*events), GroupFacts(of, phase, 1 if of.members else None, rows)))
    assert what in cause.what and do in (cause.do or ""), cause


def test_a_commit_that_was_refused_before_another_was_taken_is_no_cause() -> None:
    of = GroupFacts(group((T0, T1, T2)), "Stable", 1, [read(9, 0, 9, lag=0)])
    assert [one.do for one in why_group(known(REFUSED), of)] == [None]


def test_no_member_is_nearer_than_a_leader_that_is_silent() -> None:
    of = known()
    of.snapshot.silent = {1: "no answer"}
    cause = checked(why_group(of, GroupFacts(Group(GroupState("g"), (), {}), "Empty", rows=[read(5, 0, 9, lag=4)])))
    assert "no member" in cause.what
