"""`klog group`, `klog offset export` and `import`, and groups in `klog zk tree`, as a person or a script uses them."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import confluent_kafka
import pytest

import klog as klog_library
from klog.coordination import committed, paths
from klog.coordination.committed import CommittedOffset
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit, enter, join, member
from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal
from tests.cli.runner import Ran, klog
from tests.tools.verbs import make_topic, send
from tests.until import until


@pytest.fixture
def group(broker: RunningBroker, registry: ZooKeeper, topic: str) -> str:
    """A group that has read 4 of 30 messages of two partitions, all of them in one batch of the first."""
    make_topic(broker.bootstrap, topic, 2)
    one_batch = {"batch.num.messages": "30", "linger.ms": "5000"}
    lines = "".join(f"m{number}\n" for number in range(30)).encode()
    assert send(broker.bootstrap, topic, lines, partition=0, librdkafka=one_batch).messages == 30
    commit(registry, f"{topic}-g", {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 0})
    return f"{topic}-g"


def offsets(registry: ZooKeeper, group: str) -> dict[int, int]:
    return {name.partition: one.offset for name, one in committed.read(registry, group).items()}


def way_back(ran: Ran) -> list[str]:
    """The command that the last line of a receipt names."""
    assert ran.code == 0, ran
    *_, line = ran.stderr.splitlines()
    assert line.startswith("undo: klog undo "), ran.stderr
    return line.removeprefix("undo: klog ").split()


# --- looking ---


def test_groups_and_members_of_both_ways(at: list[str], registry: ZooKeeper, topic: str, group: str) -> None:
    names = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stock, streams = f"{topic}-stock", f"{topic}-streams"
    join(registry, stock, member("m-1", *names), member("m-2", instance="i-2"))
    consumer_id = enter(registry, streams, topic, names[1])
    rows = {row["group"]: row for row in klog("group", "list", f"{topic}-*", "-o", "json", *at).rows}
    shown = {name: (row["state"], row["protocol"], row["members"]) for name, row in rows.items()}
    assert shown == {
        group: ("Empty", None, 0),
        stock: ("Stable", "range", 2),
        streams: ("Stable", "zookeeper", 1),
    }
    assert rows[stock]["coordinator"] == 1 and rows[streams]["coordinator"] is None
    assert rows[group]["topics"] == [topic] and rows[group]["partitions"] == 2
    table = klog("groups", "ls", "-r", f"{topic}-.*", *at).stdout.splitlines()
    assert table[0].split() == ["GROUP", "STATE", "PROTOCOL", "COORDINATOR", "MEMBERS"]
    described = klog("group", "describe", stock, "-o", "json", *at).rows
    assert [(row["member"], row["client"], row["host"], row["partition"]) for row in described] == [
        ("m-1", "the-client", "/10.0.0.7", 0),
        ("m-1", "the-client", "/10.0.0.7", 1),
        ("m-2", "the-client", "/10.0.0.7", None),
    ]
    (row,) = klog("group", "describe", streams, "-o", "json", *at).rows
    assert (row["member"], row["host"], row["topic"], row["partition"]) == (consumer_id, "host-of-it", topic, 1)
    said = klog("group", "describe", stock, *at).stderr
    assert "Stable, 2 members, protocol range, generation 1" in said and "broker 1" in said
    for name, way in ((stock, {"way=coordinator", "members=2"}), (streams, {"way=zookeeper"})):
        (state,) = klog("zk", "groups", name, "-o", "json", *at).rows  # the words of the version before
        assert state["path"] == paths.group(name) and way <= set(state["entry"].split())
    nodes = {row["path"]: row for row in klog("zk", "tree", f"/consumers/{streams}", "-o", "json", *at).rows}
    live, owner = nodes[paths.consumer_id(streams, consumer_id)], nodes[paths.consumer_owner(streams, topic, 1)]
    assert live["session"].startswith("0x") and f"subscription={topic}:1" in live["entry"].split()
    assert (owner["session"], owner["entry"]) == (live["session"], f"{consumer_id}-0")


def test_the_lag_of_a_group(at: list[str], topic: str, group: str) -> None:
    ran = klog("lag", group, "-o", "json", *at)
    assert ran.code == 0, ran.stderr
    assert [(row["partition"], row["current_offset"], row["lag"]) for row in ran.rows] == [(0, 4, 26), (1, 0, 0)]
    assert list(ran.rows[0])[:10] == [
        *("group", "topic", "partition", "current_offset", "log_start_offset", "log_end_offset"),
        *("lag", "lag_bytes", "lag_ms", "owner"),
    ]
    table = klog("lag", group, *at)
    assert table.stdout.splitlines()[0].split()[:10] == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-START-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "LAG-BYTES", "LAG-MS", "OWNER"),
    ]
    assert "1 group, 2 partitions; lag: 26 messages" in table.stderr
    assert [row["lag"] for row in klog("lag", group, "--only-lagging", "-o", "json", *at).rows] == [26]
    assert [row["lag"] for row in klog("lag", group, "--sort", "lag", "-o", "json", *at).rows] == [26, 0]
    (total,) = klog("lag", group, "--total", "-o", "json", *at).rows
    assert (total["group"], total["topic"], total["partition"], total["lag"]) == (group, None, None, 26)
    assert klog("lag", group, "-t", topic, "-o", "json", *at).rows[0]["lag"] == 26


def test_a_node_that_means_nothing_spoils_its_own_group_only(
    at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    broken = f"{topic}-broken"
    commit(registry, broken, {TopicPartition(topic, 0): 1})
    registry.create(paths.group(broken), b"rubbish")
    try:
        listed = klog("group", "list", f"{topic}-*", "-o", "json", *at)
        assert listed.code == 1
        rows = {row["group"]: row for row in listed.rows}
        assert rows[group]["error"] is None and rows[group]["state"] == "Empty"
        assert rows[broken]["error"] == "ZOOKEEPER" and paths.group(broken) in rows[broken]["message"]
        lag = klog("lag", broken, group, "-o", "json", *at)
        assert lag.code == 0 and {row["group"] for row in lag.rows} == {broken, group}
        assert paths.group(broken) in klog("group", "rewind", broken, "--to", "start", "-y", *at).stderr
    finally:
        registry.delete(paths.group(broken))


def test_whose_an_entry_is_and_who_has_read_a_message(
    at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    consumer_id = enter(registry, f"{topic}-streams", topic, TopicPartition(topic, 0))
    owner = paths.consumer_owner(f"{topic}-streams", topic, 0)
    (row,) = klog("zk", "stat", owner, "-o", "json", *at).rows
    assert row["holder"] == f"consumer {consumer_id} of group {topic}-streams"
    for offset, past in ((3, [group]), (4, [])):
        (place,) = klog("where", topic, offset, "-p", "0", "-o", "json", *at).rows
        assert [one for one in place["groups_past"] if one.startswith(topic)] == past


# --- watching ---


def test_watched_on_a_terminal_it_is_a_live_table(at: list[str], registry: ZooKeeper, topic: str, group: str) -> None:
    with on_terminal("lag", group, "--watch", "--every", "100ms", *at) as (process, terminal):
        terminal.wait_for("lag: 26 messages")
        commit(registry, group, {TopicPartition(topic, 0): 29})
        shown = terminal.wait_for("lag: 1 message,")
        assert "\x1b[H\x1b[J" in shown and " LAG " in shown
        terminal.type("\x03")
        assert process.wait(20) == 130


# --- rewinding ---


def test_a_rewind_is_shown_asked_about_done_and_taken_back(
    at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    rewind = ["group", "rewind", group, "--to", "end", "-t", topic, "-p", "0"]
    asked = klog(*rewind, "-o", "json", *at)
    assert (asked.code, asked.error["code"]) == (2, "NEEDS_ANSWER")
    assert "26 messages" in asked.error["message"] and at[1] in asked.error["message"]
    dry = klog(*rewind, "--dry-run", "-o", "json", *at)
    (row,) = dry.rows
    end = row["new"]
    assert dry.code == 0 and (row["partition"], row["prior"], row["messages"]) == (0, 4, 26)
    assert offsets(registry, group) == {0: 4, 1: 0}
    done = klog(*rewind, "-y", *at)
    assert done.code == 0, done.stderr
    assert offsets(registry, group) == {0: end, 1: 0}
    back = klog(*way_back(done), "-y", *at)
    assert offsets(registry, group) == {0: 4, 1: 0}
    again = klog(*way_back(back), "-y", "-o", "json", *at)
    assert way_back(again), "scripts are told, too"
    assert offsets(registry, group)[0] == end
    nothing = klog("group", "rewind", group, "--to", "end", *at)
    assert nothing.code == 0 and "0 of 2 partitions" in nothing.stderr, "there is nothing to be asked about"


def test_one_topic_is_forgotten_and_comes_back(at: list[str], registry: ZooKeeper, topic: str, group: str) -> None:
    commit(registry, group, {TopicPartition(f"{topic}-gone", 3): 9})
    gone = klog("group", "forget", group, "-t", f"{topic}-gone", "-y", "-o", "json", *at)
    assert gone.code == 0 and [(row["partition"], row["prior"], row["new"]) for row in gone.rows] == [(3, 9, None)]
    assert offsets(registry, group) == {0: 4, 1: 0}, "the others stay"
    again = klog("group", "forget", group, "-t", f"{topic}-gone", "-y", "-o", "json", *at)
    assert again.code == 1 and group in again.error["message"]
    forgotten = klog("group", "forget", group, "-t", topic, "-y", *at)
    assert forgotten.code == 0 and offsets(registry, group) == {}
    assert klog(*way_back(forgotten), "-y", *at).code == 0 and offsets(registry, group) == {0: 4, 1: 0}
    join(registry, group, member("m-1", TopicPartition(topic, 0)))
    assert klog("group", "forget", group, "-t", topic, "-y", "-o", "json", *at).error["code"] == "NON_EMPTY_GROUP"


@pytest.mark.parametrize("way", ["stock", "streams"])
def test_live_members_are_named_and_fenced_by_force(
    at: list[str], registry: ZooKeeper, topic: str, group: str, way: str
) -> None:
    name = TopicPartition(topic, 0)
    if way == "stock":
        join(registry, group, member("m-1", name))
        who = "m-1 (client the-client, host 10.0.0.7)"
    else:
        who = f"{enter(registry, group, topic, name)} (host host-of-it)"
    ran = klog("group", "rewind", group, "--to", "start", "-y", "-o", "json", *at)
    assert (ran.code, ran.error["code"]) == (1, "NON_EMPTY_GROUP")
    assert who in ran.error["message"] and "--force" in ran.error["hint"]
    shown = klog("group", "rewind", group, "--to", "start", "--dry-run", "-o", "json", *at)
    assert shown.code == 0 and who in shown.stderr and "--force" in shown.stderr
    assert klog("group", "delete", group, "-y", "-o", "json", *at).error["code"] == "NON_EMPTY_GROUP"
    assert offsets(registry, group) == {0: 4, 1: 0}
    asked = klog("group", "rewind", group, "--to", "start", "--force", "-o", "json", *at)
    assert asked.code == 2 and re.search(rf"\b1 live member\b.*{re.escape(who)}", asked.error["message"])
    forced = klog("group", "rewind", group, "--to", "start", "--force", "-y", *at)
    assert forced.code == 0 and f"fenced: {who}" in forced.stderr
    assert offsets(registry, group) == {0: 0, 1: 0}
    assert klog("group", "list", group, "-o", "json", *at).rows[0]["state"] == "Empty"


def test_a_group_that_is_not_there_yet_is_made_on_purpose(
    at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    rewind = ("group", "rewind", f"{topic}-new", "--to", "+5", "-t", topic, "-y", *at)
    assert klog(*rewind).code == 1
    made = klog(*rewind, "--create")
    assert made.code == 0, made.stderr
    assert offsets(registry, f"{topic}-new")[0] == 5


def test_a_groups_end_and_its_way_back(at: list[str], registry: ZooKeeper, topic: str, group: str) -> None:
    registry.set(paths.consumer_offset(group, topic, 1), b"0")
    preview = klog("group", "delete", group, "--dry-run", "-o", "json", *at)
    assert [(row["partition"], row["prior"], row["new"]) for row in preview.rows] == [(0, 4, None), (1, 0, None)]
    assert klog("group", "delete", group, *at).code == 2
    gone = klog("group", "rm", group, "-y", *at)
    assert gone.code == 0, gone.stderr
    assert klog("lag", group, *at).code == 1
    assert registry.exists(f"/consumers/{group}") is None
    assert klog(*way_back(gone), "-y", *at).code == 0
    assert offsets(registry, group) == {0: 4, 1: 0}


# --- with consumers that really read ---


class Reader:
    """A stock client's consumer in a thread; ``seen`` grows by the offset of every message it reads."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.seen: list[int] = []
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "stock",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
        }
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _read(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.append(message.offset())
        consumer.close()


def test_a_stock_client_that_is_rewound_by_force_reads_again(
    at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    """Also one that has nothing to read, and so would commit nothing and notice nothing."""
    live = f"{topic}-live"
    with Reader(at[1], live, topic) as reader:
        until(lambda: len(reader.seen) == 30, "all messages are read")
        until(lambda: offsets(registry, live).get(0, 0) > reader.seen[-1], "and committed")
        (row,) = klog("group", "list", live, "-o", "json", *at).rows
        assert (row["state"], row["protocol"], row["members"], row["coordinator"]) == ("Stable", "range", 1, 1)
        rows = klog("lag", live, "-o", "json", *at).rows
        (described, _) = klog("group", "describe", live, "-o", "json", *at).rows
        assert described["client"] == "stock" and described["topic"] == topic
        assert {row["owner"] for row in rows} == {described["member"]}
        assert [row["lag"] for row in rows if row["partition"] == 0] == [0]
        refused = klog("group", "rewind", live, "--to", "start", "-y", *at)
        assert refused.code == 1 and "stock" in refused.stderr and "127.0.0.1" in refused.stderr
        forced = klog("group", "rewind", live, "--to", "+10", "-y", "--force", *at)
        assert forced.code == 0 and "20 messages" in forced.stderr
        until(lambda: len(reader.seen) == 50, "what was rewound is read again")
        assert reader.seen[30:] == reader.seen[10:30]
    until(lambda: klog("group", "list", live, "-o", "json", *at).rows[0]["members"] == 0, "nobody is left")
    assert klog("group", "delete", live, "-y", *at).code == 0


def test_a_consumer_by_zookeeper_that_is_rewound_by_force_reads_again(
    broker: RunningBroker, at: list[str], registry: ZooKeeper, topic: str, group: str
) -> None:
    live = f"{topic}-live"
    commit(registry, live, {TopicPartition(topic, 0): 0})
    consumer = klog_library.Consumer(broker.zookeeper, live, auto_commit_interval_ms=100, consumer_timeout_ms=30_000)
    try:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        seen = [next(stream).offset for _ in range(30)]
        until(lambda: offsets(registry, live)[0] == seen[-1], "all is committed but the message in hand")
        (described, _) = klog("group", "describe", live, "-o", "json", *at).rows
        assert described["topic"] == topic and described["host"] and described["thread"] == 0
        assert klog("group", "rewind", live, "--to", "start", "-y", *at).code == 1
        assert klog("group", "rewind", live, "--to", "+10", "-y", "--force", *at).code == 0
        again = [next(stream).offset for _ in range(20)]
        while again[0] == seen[-1]:  # it had entered again before the offset was written, with the message in hand
            again = [*again[1:], next(stream).offset]
        assert again == seen[10:]
    finally:
        consumer.shutdown()
    assert klog("group", "list", live, "-o", "json", *at).rows[0]["state"] == "Empty"


# --- files ---


@pytest.mark.parametrize("form", ["zk", "json"])
def test_offsets_to_a_file_and_back(
    at: list[str], registry: ZooKeeper, topic: str, group: str, form: str, tmp_path: Path
) -> None:
    commit(registry, group, {TopicPartition(topic, 0): CommittedOffset(4, 0, "a note")})
    file = tmp_path / "offsets"
    written = klog("offset", "export", group, file, "--format", form, *at)
    assert written.code == 0 and written.stdout == "", written.stderr
    assert klog("offset", "export", group, "--format", form, *at).stdout == file.read_text()
    if form == "zk":
        assert file.read_text() == f"/consumers/{group}/offsets/{topic}/0:4\n/consumers/{group}/offsets/{topic}/1:0\n"
    same = klog("offset", "import", file, *at)
    assert same.code == 0 and "messages" not in same.stderr
    assert klog("group", "rewind", group, "--to", "end", "-y", *at).code == 0
    asked = klog("offset", "import", file, "-o", "json", *at)
    assert asked.code == 2 and "26 messages" in asked.error["message"]
    ran = klog("offset", "import", file, "-y", "-o", "json", *at)
    assert ran.code == 0, ran.stderr
    assert [(row["partition"], row["new"], row["messages"]) for row in ran.rows] == [(0, 4, -26)]
    found = committed.read(registry, group)[TopicPartition(topic, 0)]
    assert (found.offset, found.metadata) == (4, "a note" if form == "json" else "")


def test_bad_lines_are_all_named_and_nothing_is_written(
    at: list[str], registry: ZooKeeper, topic: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets"
    file.write_text(
        f"/consumers/{group}/offsets/{topic}/0:9\n"
        f"/consumers/{group}/offsets/{topic}/7:1\n"
        "rubbish\n"
        f"/consumers/{group}/offsets/{topic}-no/0:1\n"
        f"/consumers/{group}/offsets/{topic}/1-1:0\n"
    )
    ran = klog("offset", "import", file, "-y", "-o", "json", *at)
    assert (ran.code, ran.error["code"]) == (1, "REFUSED")
    message = ran.error["message"]
    assert re.search(r"\b3 ", message) and [f"line {number}:" in message for number in range(1, 6)] == [
        *(False, True, True, True, False),
    ]
    assert "--skip-bad" in ran.error["hint"]
    assert offsets(registry, group) == {0: 4, 1: 0}
    skipped = klog("offset", "import", file, "-y", "--skip-bad", *at)
    assert skipped.code == 0 and len(re.findall(r"\bline \d", skipped.stderr)) == 3
    assert offsets(registry, group) == {0: 9, 1: 0}
    join(registry, group, member("m-1"))
    held = klog("offset", "import", file, "-y", "--skip-bad", "-o", "json", *at)
    assert held.code == 1 and held.error["code"] == "NON_EMPTY_GROUP"


def test_the_short_form_of_kafka_names_no_group(
    at: list[str], registry: ZooKeeper, topic: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,7\n")
    assert klog("offset", "import", file, "-y", *at).code == 1
    assert klog("offset", "import", file, "-g", group, "-y", *at).code == 0
    assert offsets(registry, group)[0] == 7
