"""What a command would do is shown by ``--dry-run``. What loses or stops something asks, on protected clusters more."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.admin.undo import CANNOT_BE_UNDONE
from klog.client.reassignments import elect_replicas
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.schemas import DELETE_ACT, REGISTER_ACT
from klog.names import TopicPartition
from tests.cli.runner import Ran, act_rows, klog
from tests.cluster_fixture import RunningCluster
from tests.rows import each
from tests.tools.verbs import run

pytestmark = pytest.mark.xdist_group("questions")

EVENTS = "klog.events"
ACTS = "/klog/acts"
"""An act waits here until its event is written."""
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
INCOMPATIBLE = '{"type":"record","name":"R","fields":[{"name":"b","type":"long"}]}'


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Two brokers that check permissions, and permit everything to who runs the commands."""
    running = RunningCluster(
        tmp_path_factory.mktemp("questions"),
        f"{zookeeper.address}/questions-{secrets.token_hex(4)}",
        2,
        default__replication__factor="2",
        min__insync__replicas="1",
        authorizer__class__name="klog",
        super__users="User:ANONYMOUS",
    )
    with running.started():
        running.create("first", partitions=1, factor=2)  # whose act is an event
        running.wait_until(lambda: EVENTS in {one.name for one in running.metadata().topics}, f"there is {EVENTS}")
        running.wait_in_sync(EVENTS)
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``KLOG_HOME``, empty."""
    monkeypatch.setenv("KLOG_HOME", str(tmp_path / "home"))
    return tmp_path


def on(cluster: RunningCluster, *words: object, text: str = "") -> Ran:
    at = ["-B", cluster.bootstrap, "-z", cluster.zookeeper]
    return klog(*words, *at, "-o", "json", input=text)


def done(cluster: RunningCluster, *words: object, text: str = "") -> Ran:
    ran = on(cluster, *words, text=text)
    assert ran.code == 0, (words, ran)
    return ran


def state(cluster: RunningCluster) -> dict[str, Any]:
    """Every znode with its version, every act, and the processes of the brokers."""
    rows = done(cluster, "zk", "tree", "/").rows
    found: dict[str, Any] = {row["path"]: row["version"] for row in rows if not row["path"].startswith(ACTS)}
    found["acts"] = [row["act"] for row in act_rows(cluster.zookeeper)]
    return found | {f"broker {one}": cluster.brokers[one].pid for one in cluster.running}


def settled(cluster: RunningCluster, topic: str) -> None:
    cluster.wait_for_leader(topic)
    cluster.wait_in_sync(topic)


def make_topic(cluster: RunningCluster, topic: str) -> None:
    done(cluster, "topic", "create", topic, "-p", 2)
    settled(cluster, topic)


def make_group(cluster: RunningCluster, topic: str) -> None:
    make_topic(cluster, topic)
    done(cluster, "group", "rewind", topic, "--to", "start", "-t", topic, "--create", "--yes")


def make_led_by_others(cluster: RunningCluster, topic: str) -> None:
    make_topic(cluster, topic)
    name = TopicPartition(topic, 0)
    second = cluster.partitions(topic)[0].replica_nodes[1]
    assert run(cluster.bootstrap, lambda asked: elect_replicas(asked, {name: second})) == {name: None}
    cluster.wait_until(lambda: cluster.leader_of(topic) == second, "the other replica leads")


def make_subject(cluster: RunningCluster, subject: str) -> None:
    done(cluster, "schema", "register", subject, text=SCHEMA)


def make_deleted_subject(cluster: RunningCluster, subject: str) -> None:
    make_subject(cluster, subject)
    done(cluster, "schema", "delete", subject)


def make_quota(cluster: RunningCluster, user: str) -> None:
    done(cluster, "quota", "set", "producer_byte_rate=1MB", "consumer_byte_rate=1MB", "--user", user)


def make_acl(cluster: RunningCluster, principal: str) -> None:
    done(cluster, "acl", "add", principal, "read", "topic:t")


def make_user(cluster: RunningCluster, user: str) -> None:
    done(cluster, "user", "add", user, "--generate")


def nothing(cluster: RunningCluster, name: str) -> None:
    pass


PLANS: list[tuple[str, Callable[[RunningCluster, str], None], str]] = [
    ("topic create NAME -p 3 -X retention.ms=1h", nothing, ""),
    ("topic create NAME -p 3 --if-not-exists", make_topic, ""),
    ("topic create NAME --assignment 1,2", nothing, ""),
    ("group copy NAME NAME-copy", make_group, ""),
    ("topic elect NAME", make_led_by_others, ""),
    ("schema register NAME -", nothing, SCHEMA),
    ("schema register NAME -", make_subject, SCHEMA),
    ("schema delete NAME", make_subject, ""),
    ("schema delete NAME --permanent", make_deleted_subject, ""),
    ("schema level FULL --subject NAME", make_subject, ""),
    ("quota set producer_byte_rate=2MB --user NAME", make_quota, ""),
    ("quota remove --user NAME", make_quota, ""),
    ("acl add NAME read,write topic:t", make_acl, ""),
    ("acl remove NAME read topic:t", make_acl, ""),
    ("user add NAME --password-file -", nothing, "correct horse battery\n"),
    ("user passwd NAME --password-file -", make_user, "correct horse battery\n"),
]
"""Command lines, what is there before, and stdin."""


@each(("line", "make", "text"), PLANS, ids=[f"{line} {make.__name__}" for line, make, _ in PLANS])
def test_a_dry_run_shows_what_is_done_and_does_nothing(
    cluster: RunningCluster, topic: str, line: str, make: Callable[[RunningCluster, str], None], text: str
) -> None:
    make(cluster, topic)
    words = line.replace("NAME", topic).split()
    before = state(cluster)
    planned = done(cluster, *words, "--dry-run", text=text)
    assert "dry run" in planned.stderr or line.startswith("topic elect")
    assert state(cluster) == before
    ran = done(cluster, *words, *(["--yes"] if "--permanent" in words or "--assignment" in words else []), text=text)
    if planned.rows or not line.startswith("schema register"):  # a new version has no number yet
        known = [row for row in ran.rows if row["subject"] == topic] if line.startswith("schema level F") else ran.rows
        assert planned.rows == (known or ran.rows[:1])


@each("line", ["broker stop 2", "broker restart --all"])
def test_a_dry_run_stops_no_broker(cluster: RunningCluster, line: str) -> None:
    before = state(cluster)
    shown = done(cluster, *line.split(), "--dry-run")
    assert sorted(row["broker"] for row in shown.rows) == ([2] if "stop" in line else [1, 2])
    assert "dry run" in shown.stderr and cluster.running == [1, 2]
    assert state(cluster) == before


@each(
    ("line", "make", "text"),
    [
        ("topic create NAME", make_topic, ""),
        ("topic create NAME --replication-factor 3", nothing, ""),
        ("group copy NAME NAME-copy", nothing, ""),
        ("topic elect NAME", nothing, ""),
        ("broker stop 77", nothing, ""),
        ("schema register NAME -", make_subject, INCOMPATIBLE),
        ("schema delete NAME --permanent", make_subject, ""),
        ("schema level LOOSE", nothing, ""),
        ("quota remove producer_byte_rate --user NAME", nothing, ""),
        ("acl remove NAME read topic:t", nothing, ""),
        ("user add NAME --password-file -", make_user, "correct horse battery\n"),
        ("user passwd NAME --password-file -", nothing, "correct horse battery\n"),
    ],
)
def test_a_dry_run_has_the_error_of_what_would_fail(
    cluster: RunningCluster, topic: str, line: str, make: Callable[[RunningCluster, str], None], text: str
) -> None:
    make(cluster, topic)
    words = line.replace("NAME", topic).split()
    planned = on(cluster, *words, "--dry-run", text=text)
    ran = on(cluster, *words, text=text)
    assert planned.code == ran.code > 0
    assert planned.error["code"] == ran.error["code"]
    assert ran.error["message"].startswith(planned.error["message"])


# --- questions


def test_one_replica_is_asked_for_twice(cluster: RunningCluster, topic: str) -> None:
    """Where there are brokers for more."""
    for number, words in enumerate((["--replication-factor", 1], ["--assignment", "1,2"])):
        create = ["topic", "create", f"{topic}-{number}", *words]
        asked = on(cluster, *create)
        assert asked.code == 2 and "one replica" in asked.error["message"] and "--yes" in asked.error["message"]
        assert on(cluster, "topic", "describe", f"{topic}-{number}").code == 1
        assert done(cluster, *create, "--dry-run").rows[0]["replication_factor"] == 1
        settled(cluster, done(cluster, *create, "--yes").rows[0]["topic"])
    assert on(cluster, "topic", "create", f"{topic}-like", "--like", f"{topic}-0").code == 2
    done(cluster, "topic", "create", f"{topic}-0", "--replication-factor", 1, "--if-not-exists")
    done(cluster, "topic", "create", topic, "--replication-factor", 2)


def test_what_cannot_be_taken_back_says_so_before(cluster: RunningCluster, topic: str) -> None:
    make_topic(cluster, topic)
    make_deleted_subject(cluster, topic)
    for words, kind in (
        (["topic", "alter", topic, "-p", 3], "partitions-add"),
        (["topic", "delete", topic, "--purge"], "topic-purge"),
        (["schema", "delete", topic, "--permanent"], DELETE_ACT),
    ):
        asked = on(cluster, *words)
        assert asked.code == 2 and CANNOT_BE_UNDONE[kind] in asked.error["message"]
        assert CANNOT_BE_UNDONE[kind] in done(cluster, *words, "--dry-run").stderr
    for words, kind in (
        (["topic", "create", f"{topic}-b"], "topic-create"),
        (["broker", "stop", 1], "broker-stop"),
        (["schema", "register", f"{topic}-b"], REGISTER_ACT),
    ):
        assert CANNOT_BE_UNDONE[kind] in done(cluster, *words, "--dry-run", text=SCHEMA).stderr
    (version,) = done(cluster, "schema", "list", topic, "--deleted").rows
    assert version["version"] == 1, "nothing asked for is done yet"
    done(cluster, "schema", "delete", topic, "--permanent", "--yes")
    assert on(cluster, "schema", "list", topic, "--deleted").code == 1


def test_a_stop_asks_where_partitions_have_no_other_broker(
    make_cluster: Callable[..., RunningCluster], topic: str
) -> None:
    two = make_cluster(2, default__replication__factor="2").start()
    make_topic(two, topic)
    done(two, "topic", "create", f"{topic}-alone", "--assignment", "2,2,1", "--yes")
    settled(two, f"{topic}-alone")
    asked = on(two, "broker", "stop", 2)
    assert asked.code == 2 and "2 partitions" in asked.error["message"]
    assert done(two, "broker", "stop", 2, "--dry-run").rows[0]["offline"] == 2
    done(two, "broker", "stop", 2, "--yes")
    assert two.brokers[2].process is not None and two.brokers[2].process.wait(20) == 0
    two.wait_until(lambda: two.leader_of(topic) == 1, "broker 1 leads")
    assert two.running == [1]
    assert klog("broker", "stop", 1, "-B", two.brokers[1].bootstrap).code == 0, "the last one stops all that is left"


@each(
    ("line", "make", "text"),
    [
        ("broker stop 2", nothing, ""),
        ("broker restart 2", nothing, ""),
        ("schema delete NAME --permanent", make_deleted_subject, ""),
        ("quota remove --user NAME", make_quota, ""),
        ("acl remove NAME read topic:t", make_acl, ""),
        ("user passwd NAME --password-file -", make_user, "correct horse battery\n"),
        ("user delete NAME", make_user, ""),
        ("topic create NAME --replication-factor 1", nothing, ""),
    ],
)
def test_a_protected_cluster_wants_its_name_for_what_stops_or_loses_something(
    cluster: RunningCluster, topic: str, home: Path, line: str, make: Callable[[RunningCluster, str], None], text: str
) -> None:
    """In a ``home`` of its own, in which nothing is protected yet."""
    make(cluster, topic)
    words = line.replace("NAME", topic).split()
    assert klog("profile", "add", "prod", "-B", cluster.bootstrap).code == 0
    assert klog("profile", "set", "prod", "protected=true").code == 0
    before = state(cluster)
    for more in ([], ["--yes"]):
        refused = on(cluster, *words, *more, text=text)
        assert refused.code == 2 and "--confirm prod" in refused.error["message"] + (refused.error["hint"] or "")
    assert on(cluster, *words, "--yes", "--confirm", "other", text=text).code == 2
    done(cluster, *words, "--dry-run", text=text)
    assert state(cluster) == before
    if not line.startswith("broker"):  # other tests need them
        done(cluster, *words, "--yes", "--confirm", "prod", text=text)


def test_what_adds_something_asks_on_no_cluster(cluster: RunningCluster, topic: str) -> None:
    assert klog("profile", "add", "prod", "-B", cluster.bootstrap).code == 0
    assert klog("profile", "set", "prod", "protected=true").code == 0
    for make in (make_topic, make_subject, make_quota, make_acl, make_user):
        make(cluster, topic)
    done(cluster, "schema", "level", "FULL", "--subject", topic)
    # Of all topics: the cluster's story is among them, and others' that may be without their preferred replica.
    assert on(cluster, "topic", "elect").code in (0, 1)
