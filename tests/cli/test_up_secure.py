"""``klog up --secure``: one command closes a cluster of three brokers, and the same words as ever work on it."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import klog as library
from bench.processes import ports_in_a_row
from klog.admin import security_files, users
from klog.client.client_config import read_client_config
from klog.client.cluster import Cluster
from klog.client.raw_fetch import RawCluster
from klog.client.servers import Servers, librdkafka_servers
from klog.config.properties import read_properties
from klog.coordination import paths
from klog.coordination.znode_acls import OPEN, acls_of, is_sensitive
from klog.coordination.zookeeper import ZooKeeper
from klog.coordination.zookeeper_access import ZooKeeperServers
from klog.security.errors import NotAllowedByZooKeeper, SaslAuthenticationFailed
from klog.security.scram import ScramMechanism
from tests.cli.example_lines import example
from tests.cli.runner import events_are_told, klog
from tests.until import until

pytestmark = pytest.mark.xdist_group("secure")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a secured cluster of three brokers, which is the local one."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KLOG_HOME", str(home))
        begun = klog(*example("klog up --secure -d"), "--brokers", 3, "--port", ports_in_a_row(3))
        assert begun.code == 0, begun.stderr
        try:
            yield home / "local"
        finally:
            klog("down")


@pytest.fixture(autouse=True)
def home(closed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """klog's home folder, shared by these tests."""
    monkeypatch.setenv("KLOG_HOME", str(closed.parent))
    return closed.parent


def servers(closed: Path) -> Servers:
    """How the administrator connects."""
    security = read_client_config(closed / "security" / "client.properties").security
    assert security is not None
    status = klog("broker", "list", "-o", "json").rows
    return Servers(",".join(f"127.0.0.1:{row['port']}" for row in status), security)


def zookeeper() -> str:
    """Its address."""
    (server,) = klog("status", "-o", "json").about["zookeeper"]
    return str(server["address"])


def properties_of(closed: Path, name: str, password: str) -> Path:
    path = closed / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f"ssl.ca.location={closed / 'security' / 'ca.pem'}\nsasl.username={name}\nsasl.password={password}\n"
    )
    return path


def test_commands_of_the_administrator_need_no_flags(closed: Path) -> None:
    assert klog("topic", "create", "work", "-p", 3, "-o", "json").rows[0]["replication_factor"] == 3
    sent = klog("produce", "work", input=b"one\ntwo\nthree\n")
    assert sent.code == 0, sent.stderr
    assert sorted(klog("tail", "work", "-o", "start", "-e").stdout.split()) == ["one", "three", "two"]
    group = klog("tail", "work", "-o", "start", "-G", "readers", "-c", 3)
    assert sorted(group.stdout.split()) == ["one", "three", "two"], group.stderr
    assert sum(row["lag"] for row in klog("lag", "readers", "-o", "json").rows) == 0
    assert klog("topic", "verify", "work").code == 0

    def told() -> list[str]:
        ran = klog("events", "topic", "work", "--kind", "act", "-o", "json")
        return [row["what"] for row in ran.rows] if ran.code == 0 else []

    acts = until(told, "the acts on the topic are events")
    assert all(" by User:admin, " in one for one in acts), acts
    checked = klog("status", "--wait", "20s", "-o", "json")
    assert checked.code == 0, checked.stdout


def test_brokers_that_zookeeper_names_are_asked_as_the_client_connects(closed: Path, home: Path) -> None:
    """By -X beside a file, and by a profile."""
    config = closed / "security" / "client.properties"
    at = ("-z", zookeeper())
    assert klog("profile", "add", "closed", *at).code == 0
    assert klog("profile", "set", "closed", f"client_config={config}").code == 0
    rest = closed / "rest.properties"
    lines = config.read_text().splitlines()
    rest.write_text("\n".join(one for one in lines if not one.startswith(("security.protocol", "bootstrap"))))
    by_flag = ("--client-config", rest, "-X", "security.protocol=SASL_SSL")
    for by in ((*at, *by_flag), ("--profile", "closed")):
        checked = klog("status", "--wait", "20s", *by, "-o", "json")
        assert (checked.code, checked.rows) == (0, []), by
        assert [one["state"] for one in checked.about["brokers"]] == ["up"] * 3
    assert klog("status", "broker", 1, "--profile", "closed").code == 0
    assert klog("profile", "remove", "closed").code == 0


def test_a_broker_says_how_messages_go_out(closed: Path) -> None:
    (row,) = klog("broker", "describe", 1, "-o", "json").rows
    (listener,) = row["listeners"]
    assert listener == f"SASL_SSL://127.0.0.1:{row['port']} SASL_SSL encrypted"
    assert listener in klog("broker", "describe", 1).stderr


def test_users_may_what_they_are_permitted(closed: Path) -> None:
    assert klog("topic", "create", "permitted").code == 0
    assert klog("produce", "permitted", input=b"hello\n").code == 0
    until(events_are_told, "the topic of events")
    password = klog("user", "add", "bob", "--generate").stdout.strip()
    bob = ("--client-config", properties_of(closed, "bob", password))
    assert klog("topic", "list", "-o", "json", *bob).rows == []
    refused = klog("offset", "list", "permitted", "-o", "json", *bob)
    assert refused.code == 1 and refused.error["code"] == "TOPIC_AUTHORIZATION_FAILED"
    assert klog("acl", "check", "User:bob", "Read", "topic:permitted").code == 1
    assert klog("acl", "add", "User:bob", "Read", "topic:permitted").code == 0
    assert klog("tail", "permitted", "-o", "start", "-e", *bob).stdout == "hello\n"
    unsent = klog("produce", "permitted", *bob, input=b"no\n")
    assert unsent.code == 1 and "Traceback" not in unsent.stderr

    def denied() -> bool:
        why = klog("status", "denied", "User:bob", "-o", "json")
        return any("Write" in row["what"] for row in why.rows) and why.code == 1

    until(denied, "the event follows the denial")
    assert klog("acl", "add", "User:bob", "Write", "topic:permitted").code == 0
    assert klog("produce", "permitted", *bob, input=b"yes\n").code == 0


def test_passwords_change_and_users_go(closed: Path) -> None:
    (closed / "first").write_text("a first password\n")
    assert klog("user", "add", "eve", "--password-file", closed / "first").code == 0
    eve = ("--client-config", properties_of(closed, "eve", "a first password"))
    assert klog("topic", "list", *eve).code == 0
    assert klog("user", "add", "eve", "--generate", "-o", "json").error["code"] == "REFUSED"
    assert klog("user", "passwd", "eve", "--password-file", "-", input="another password\n").code == 0
    wrong = klog("topic", "list", "-o", "json", *eve)
    assert wrong.code == 1 and wrong.error["code"] == "SASL_AUTHENTICATION_FAILED"
    again = ("--client-config", properties_of(closed, "eve", "another password"))
    assert klog("topic", "list", *again).code == 0
    assert "eve" in {row["user"] for row in klog("user", "list", "-o", "json").rows}
    assert klog("user", "delete", "eve", "--yes").code == 0
    assert klog("topic", "list", *again).code == 1
    assert klog("user", "delete", "eve", "--yes").code == 1
    assert klog("user", "add", "eve", "--password-file", "-", input="short\n").code == 2


def test_every_broker_knows_of_a_change_when_the_command_ends(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who logs in right after the command, at any broker, is met by one that has read what was written."""
    known = servers(closed)
    monkeypatch.setattr(users, "LEARN_S", 30.0)
    processes = {row["id"]: row["pid"] for row in klog("up", "--detach", "-o", "json").rows if row["kind"] == "broker"}

    async def log_in(password: str, where: Iterable[str]) -> None:
        security = read_client_config(properties_of(closed, "dan", password)).security
        assert security is not None
        for one in where:
            (await asyncio.to_thread(RawCluster, Servers(one, security), timeout_s=5)).close()

    async def play() -> None:
        first, *_ = known.split(",")
        async with await Cluster.connect(Servers(first, known.security)) as cluster:
            await users.add_user(cluster, "dan", "a first password", [ScramMechanism.SHA_256])
            await log_in("a first password", known.split(","))
            asked = ((await cluster.metadata([])).controller_id, int(first.partition(":")[2]))
            behind = next(one for one in await cluster.brokers() if not {one.broker_id, one.port} & {*asked})
            rest = [one for one in known.split(",") if not one.endswith(f":{behind.port}")]
            os.kill(processes[behind.broker_id], signal.SIGSTOP)
            try:
                changing = asyncio.create_task(users.change_password(cluster, "dan", "another password"))
                while True:
                    try:
                        await log_in("another password", rest)
                        break
                    except SaslAuthenticationFailed:
                        assert not changing.done()
                assert not changing.done()
            finally:
                os.kill(processes[behind.broker_id], signal.SIGCONT)
            await changing
            await log_in("another password", known.split(","))
            await users.delete_user(cluster, "dan")
            for one in known.split(","):
                with pytest.raises(SaslAuthenticationFailed):
                    await log_in("another password", [one])

    asyncio.run(play())


def test_the_library_and_stock_clients_connect_by_kafkas_names(closed: Path) -> None:
    known = servers(closed)
    assert len(AdminClient(librdkafka_servers(known)).list_topics(timeout=20).brokers) == 3
    assert klog("topic", "create", "library").code == 0
    settings = {name.replace(".", "_"): value for name, value in known.security.properties().items()}
    with library.Producer(bootstrap_servers=str(known), **settings) as producer:
        producer.send("library", library.Message(b"by the library"))
    streams = {**settings, "auto_offset_reset": "smallest", "consumer_timeout_ms": 20_000}
    with pytest.raises(NotAllowedByZooKeeper), library.Consumer(zookeeper(), "stranger", **streams) as consumer:
        consumer.create_message_streams("library")
    own = read_properties(closed / "security" / "streams.properties")
    streams |= {name.replace(".", "_"): value for name, value in own.items()}
    with library.Consumer(zookeeper(), "streams", **streams) as consumer:
        (stream,) = consumer.create_message_streams("library")
        assert next(iter(stream)).payload() == b"by the library"
        consumer.commit_offsets()


@pytest.mark.long("tests/coordination/test_znode_acls.py")
def test_what_commands_do_leaves_no_node_of_zookeeper_open(closed: Path, tmp_path: Path) -> None:
    """By this test and those above: the whole tree is walked, ZooKeeper's own nodes too."""
    assert klog("topic", "create", "moved", "-p", 2).code == 0
    assert klog("produce", "moved", input=b"kept\n").code == 0
    assert klog("topic", "config", "moved", "retention.ms=100000").code == 0
    plan = tmp_path / "plan.json"
    two = ("--topics", "moved", "--replication-factor", 2)
    assert klog("reassign", "plan", *two, "--file", plan).code == 0
    assert klog("reassign", "execute", plan, "--wait", "20s", "--yes").code == 0
    assert klog("tail", "moved", "-o", "start", "-G", "movers", "-c", 1).stdout == "kept\n"
    assert klog("group", "rewind", "movers", "--to", "start", "--yes").code == 0
    assert klog("topic", "delete", "moved", "--yes").code == 0
    assert klog("topic", "restore", "moved").code == 0
    assert klog("tail", "moved", "-o", "start", "-e").stdout == "kept\n"
    assert klog("group", "delete", "movers", "--yes").code == 0
    assert klog("acl", "add", "User:bob", "Read", "topic:mov", "--prefixed").code == 0
    assert klog("topic", "delete", "moved", "--yes").code == 0
    access = read_client_config(closed / "security" / "client.properties").access
    assert access is not None and access.identities is not None
    with ZooKeeper(ZooKeeperServers(zookeeper(), access)) as owner, ZooKeeper(zookeeper()) as stranger:
        owner.start()
        stranger.start()
        tree = ["/"]
        for path in tree:
            tree += [f"{path.rstrip('/')}/{name}" for name in owner.children(path)]
        tree.remove("/zookeeper/config")  # read-only for all; and ZooKeeper refuses every change of it
        assert {folder for folder in paths.PERSISTENT if folder not in tree} == set()
        assert {paths.SECRET, paths.CONTROLLER, paths.PRODUCER_IDS, "/zookeeper/quota"} <= set(tree)
        found = dict(zip(tree, owner.acls_many(tree), strict=True))
        wrong = {path: acls for path, acls in found.items() if set(acls or ()) != set(acls_of(path, access.identities))}
        assert wrong == {}
        for path in tree:
            for change in (
                lambda one: stranger.set(one, b"x"),
                lambda one: stranger.create(f"{one.rstrip('/')}/x"),
                lambda one: stranger.set_acls_many([(one, OPEN)]),
            ):
                with pytest.raises(NotAllowedByZooKeeper):
                    change(path)
        for path in filter(is_sensitive, tree):
            with pytest.raises(NotAllowedByZooKeeper):
                stranger.get(path)
    assert klog("status", "zookeeper").code == 0
    line = "klog security zookeeper --client-config closed/client.properties --dry-run"
    assert klog(*example(line, **{"closed/client.properties": closed / "security" / "client.properties"})).code == 0


def test_commands_without_credentials_are_refused_by_name(closed: Path) -> None:
    at = ("-z", zookeeper())
    for words in (
        ("zk", "get", paths.SECRET),
        ("zk", "stat", paths.SECRET),
        ("zk", "set", paths.TOPICS, "--version", 0, "--yes"),
    ):
        refused = klog(*words, *at, "-o", "json")
        assert refused.code == 1 and refused.error["code"] == "ZOOKEEPER_NOT_ALLOWED"
        assert "zookeeper.username" in refused.error["hint"]
    assert klog("security", "zookeeper", "--yes", *at).code == 2
    (shown,) = klog("zk", "stat", paths.SECRET, "-o", "json").rows
    (entry,) = shown["acl"]
    assert entry.startswith("digest:") and entry.endswith(":cdrwa")


def test_no_password_is_in_a_log_or_a_command_line(closed: Path) -> None:
    planted = [*security_files.passwords(closed / "security").values()]
    for name in ("client.properties", "streams.properties"):
        planted.append(read_properties(closed / "security" / name)["zookeeper.password"])
    shown = [path.read_text(errors="replace") for path in closed.glob("*.log*")]
    shown += [klog("broker", "config", 1, "-o", "json").stdout, klog("--trace", "topic", "list").stderr]
    for part in klog("up", "--detach", "-o", "json").rows:
        shown.append(Path(f"/proc/{part['pid']}/cmdline").read_text())
    assert all(password not in text for password in planted for text in shown)
    folder = closed / "security"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.name != "ca.pem"} == {0o600}
    assert klog("up", "--secure", "--detach", "-o", "json").code == 0
