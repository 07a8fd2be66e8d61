"""The seam over kazoo, against a real server: results, errors, limits, watches, a missing chroot, nobody there."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.security import make_digest_acl

from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.multi_read import is_known_to
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    WatchEvent,
    ZooKeeper,
    batches,
    size_bytes,
)
from klog.errors import BadVersion, CannotConnect, NodeExists, NoNode, SessionLost, ZooKeeperError
from tests.coordination.conftest import States
from tests.rows import each
from tests.zookeeper_proxy import ZooKeeperProxy

Connect = Callable[..., ZooKeeper]


def test_create_get_set_delete(zk: ZooKeeper) -> None:
    assert zk.create("/a", b"1") == "/a"
    node = zk.get("/a")
    assert (node.data, node.stat.version, node.stat.owner_session, node.stat.data_bytes) == (b"1", 0, 0, 1)
    assert zk.set("/a", b"22", 0).version == 1
    assert abs(node.stat.created_ms / 1000 - time.time()) < 60
    assert zk.find("/b") is None
    assert zk.exists("/b") is None
    zk.delete("/a", 1)
    assert zk.find("/a") is None


def test_errors_name_the_path(zk: ZooKeeper) -> None:
    zk.create("/a/b", parents=True)
    for error, act in (
        (NoNode, lambda: zk.get("/none")),
        (NoNode, lambda: zk.children("/none")),
        (NoNode, lambda: zk.create("/none/child")),
        (NodeExists, lambda: zk.create("/a")),
        (NodeExists, lambda: zk.delete("/a")),
        (BadVersion, lambda: zk.set("/a/b", b"", 7)),
        (BadVersion, lambda: zk.delete("/a/b", 7)),
    ):
        with pytest.raises(error, match=r"/none|/a") as caught:
            act()
        assert zk.address.servers_text in caught.value.message


def test_an_ephemeral_node_goes_with_its_session(zk: ZooKeeper, connect: Connect) -> None:
    other = connect()
    other.create("/e", ephemeral=True)
    stat = zk.exists("/e")
    assert stat is not None
    assert stat.owner_session == other.session_id != zk.session_id
    other.stop()
    assert zk.exists("/e") is None
    with pytest.raises(SessionLost, match="closed"):
        other.get("/e")


@pytest.mark.parametrize("in_one_request", [True, False])
def test_many_at_once(zk: ZooKeeper, in_one_request: bool) -> None:
    """A server before 3.6 knows no request for many nodes: then many requests are sent ahead."""
    assert zk._multi_read
    zk._multi_read = in_one_request
    for name in "cab":
        zk.create(f"/d/{name}", name.encode(), parents=True)
    zk.create("/d/a/x")
    assert zk.children("/d") == ["a", "b", "c"]
    found = zk.get_many(["/d/b", "/d/none", "/d/a"])
    assert [node and node.data for node in found] == [b"b", None, b"a"]
    assert zk.children_many(["/d", "/none", "/d/a"]) == [["a", "b", "c"], [], ["x"]]
    assert zk.get_many([]) == []
    assert zk.find_many("xb", lambda name: f"/d/{name}") == {"b": zk.get("/d/b")}
    assert zk.get_many(["/"])[0] == zk.get("/")
    assert zk.get_many(["/d/b"])[0] == zk.get("/d/b")
    many = zk.get_many(["/d/none", *["/d/c", "/d/a"] * 1200])
    assert [node and node.data for node in many] == [None, *[b"c", b"a"] * 1200]


def test_only_a_server_that_says_so_is_asked_for_many_at_once() -> None:
    """One that does not know the request ends the session."""
    assert is_known_to("Zookeeper version: 3.9.5-abc, built on 2025")
    assert is_known_to("Zookeeper version: 3.6.0--b4c, built")
    assert is_known_to("Zookeeper version: 10.0.0")
    assert not is_known_to("Zookeeper version: 3.5.10-abc")
    assert not is_known_to("Zookeeper version: 3.4.14")
    assert not is_known_to("srvr is not executed because it is not in the whitelist.")


def test_an_error_in_the_middle_of_many_is_raised(zk: ZooKeeper, connect: Connect) -> None:
    """One node that may not be read: an ACL of another's."""
    zk.create("/open", b"1")
    zk._client.create("/closed", b"2", acl=[make_digest_acl("somebody", "secret", read=True)])
    with pytest.raises(ZooKeeperError, match="ACL"):
        zk.get_many(["/open", "/closed", "/none"])
    assert zk.get_many(["/open", "/none"])[0] == zk.get("/open")


def test_a_multi_is_all_or_nothing(zk: ZooKeeper) -> None:
    zk.create("/fence")
    zk.multi([Check("/fence", 0), Create("/a", b"1"), SetData("/fence", b"x", 0), Delete("/a", 0)])
    assert zk.get("/fence").stat.version == 1 and zk.exists("/a") is None
    for error, path, operations in (
        (BadVersion, "/fence", [Create("/b"), Check("/fence", 0)]),
        (NoNode, "/none", [Create("/b"), SetData("/none", b""), Create("/c")]),
        (NodeExists, "/fence", [Create("/b"), Create("/fence")]),
    ):
        with pytest.raises(error, match=path):
            zk.multi(operations)  # type: ignore[arg-type]
    assert zk.exists("/b") is None
    zk.multi([])


def test_a_multi_above_the_limit_is_refused_and_the_largest_allowed_goes_through(zk: ZooKeeper) -> None:
    """Rule Z3: our limit stays below the server's, also with many small operations."""
    with pytest.raises(ZooKeeperError, match=r"\d+"):
        zk.multi([Create("/big", b"x" * MULTI_BYTES_MAX)])
    zk.get("/")  # the session has not suffered

    def size(operation: Operation) -> int:
        return size_bytes(operation, zk.address.chroot)

    groups = [[Create(f"/node-{number:05d}", b"y" * 20)] for number in range(9000)]
    sent = list(batches(groups, size, MULTI_BYTES_MAX))
    assert len(sent) == 3
    assert all(sum(map(size, batch)) <= MULTI_BYTES_MAX for batch in sent)
    assert sum(map(size, sent[0])) > MULTI_BYTES_MAX - 200
    for batch in sent:
        zk.multi(batch)
    assert len(zk.children("/")) == 9000


def test_batches_keep_groups_together() -> None:
    assert list(batches([[1, 2], [3], [4, 5, 6], [7]], lambda _: 1, 3)) == [[1, 2, 3], [4, 5, 6], [7]]
    assert list(batches([[1, 2, 3, 4], [5]], lambda _: 1, 3)) == [[1, 2, 3, 4], [5]]
    assert list(batches([], lambda _: 1, 3)) == []


def test_watches_fire_once_with_what_happened(zk: ZooKeeper, connect: Connect) -> None:
    other = connect()
    events: list[WatchEvent] = []
    fired = threading.Semaphore(0)

    def watch(event: WatchEvent) -> None:
        events.append(event)
        fired.release()

    assert zk.find("/w", watch) is None
    other.create("/w", b"1")
    assert fired.acquire(timeout=10)
    assert zk.find("/w", watch) is not None
    other.set("/w", b"2")
    assert fired.acquire(timeout=10)
    assert zk.children("/w", watch) == []
    other.create("/w/c")
    assert fired.acquire(timeout=10)
    assert [event.kind for event in events] == ["CREATED", "CHANGED", "CHILD"]
    assert {event.path for event in events} == {"/w"}
    other.set("/w", b"3")  # nobody watches any more
    zk.get("/w")
    assert not fired.acquire(blocking=False)


def test_a_watch_left_twice_fires_once(zk: ZooKeeper, connect: Connect) -> None:
    events: list[WatchEvent] = []
    zk.create("/w")
    for _ in range(3):
        zk.get("/w", events.append)
        zk.find("/w", events.append)
    seen = threading.Event()
    zk.exists("/", lambda _: seen.set())
    zk.exists("/done", lambda _: seen.set())
    connect().multi([SetData("/w", b"2"), Create("/done")])
    assert seen.wait(10)
    assert [event.kind for event in events] == ["CHANGED"]


def test_nothing_is_logged_at_every_attempt_to_connect(
    through: Connect, proxy: ZooKeeperProxy, states: States, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    through(on_state=states)
    proxy.cut()
    states.wait_for(SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED)
    assert [record for record in caplog.records if record.name.startswith("klog.zookeeper")] == []


def test_a_missing_chroot_is_an_error_and_is_made_only_when_asked(zookeeper: ZooKeeperServer, zk: ZooKeeper) -> None:
    address = zookeeper.address + zk.address.chroot + "/deep/er"
    with pytest.raises(NoNode, match="chroot") as caught:
        ZooKeeper(address).start()
    assert zk.children("/") == []
    assert caught.value.hint
    with ZooKeeper(address) as made:
        made.start(create_chroot=True)
        made.create("/x")
    assert zk.children("/deep/er") == ["x"]


def test_every_request_can_be_traced(connect: Connect) -> None:
    seen: list[tuple[str, str, float]] = []
    zk = connect(trace=lambda *request: seen.append(request))
    zk.create("/t")
    zk.get_many(["/t", "/u"])
    assert [(operation, path) for operation, path, _ in seen if path != "/"] == [
        ("create", "/t"),
        ("get", "/t /u"),
    ]
    assert all(ms >= 0 for _, _, ms in seen)


def test_threads_share_a_session(zk: ZooKeeper) -> None:
    zk.create("/n", b"0")

    def count() -> None:
        for _ in range(25):
            while True:
                node = zk.get("/n")
                try:
                    zk.set("/n", str(int(node.data) + 1).encode(), node.stat.version)
                    break
                except BadVersion:
                    continue

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert zk.get("/n").data == b"100"


# --- Nobody there -----------------------------------------------------------------------------------------------------


def test_nobody_listens(free_port: int) -> None:
    begun = time.monotonic()
    with pytest.raises(CannotConnect, match=f"127.0.0.1:{free_port}.*refused") as caught:
        ZooKeeper(f"127.0.0.1:{free_port}/x").start(0.5)
    assert time.monotonic() - begun < 20
    assert "klog zookeeper status" in str(caught.value.hint)


def test_a_command_does_not_wait_for_who_refuses(free_port: int) -> None:
    begun = time.monotonic()
    with pytest.raises(CannotConnect, match="refused"):
        ZooKeeper(f"127.0.0.1:{free_port},localhost:{free_port}").start(30.0, patient=False)
    assert time.monotonic() - begun < 15


def test_a_broker_waits_for_its_zookeeper(zk_chroot: str, free_port: int) -> None:
    """It boots while the broker starts: the port opens, answers that it does not serve yet, and serves at last."""
    answers = [b"", b"This ZooKeeper instance is not currently serving requests\n"]
    target = ConnectString.parse(zk_chroot)
    opened: list[ZooKeeperProxy] = []

    def boot() -> None:
        for answer in answers:
            with listener(answer, free_port) as _:
                time.sleep(0.1)
        opened.append(ZooKeeperProxy(target.servers[0], free_port))

    booting = threading.Thread(target=boot)
    booting.start()
    begun = time.monotonic()
    with ZooKeeper(f"127.0.0.1:{free_port}{target.chroot}") as session:
        session.start(30.0)
        assert time.monotonic() - begun < 15
        assert session.children("/") == []
    booting.join()
    opened[0].close()


@each(
    ("answer", "said"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 400"),
        (b"This ZooKeeper instance is not currently serving requests\n", "serv"),
        (None, "answer"),
    ],
)
def test_something_else_listens(answer: bytes | None, said: str) -> None:
    with listener(answer) as port:
        begun = time.monotonic()
        with pytest.raises(CannotConnect, match=said):
            ZooKeeper(f"127.0.0.1:{port}").start(0.5)
        assert time.monotonic() - begun < 20


def test_the_second_server_is_tried(zk_chroot: str, free_port: int) -> None:
    with ZooKeeper(f"127.0.0.1:{free_port},{zk_chroot}") as zk:
        zk.start(20.0)
        assert zk.children("/") == []


def test_a_host_that_cannot_be_resolved() -> None:
    with pytest.raises(CannotConnect, match="no-such-host"):
        ZooKeeper("no-such-host.invalid:2181").start(0.5)


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is bound and not listened on: connections are refused, the kernel gives it to nobody else, and who
    asks for it (SO_REUSEADDR) may listen."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class listener:
    """A server that gives everyone one answer; with None it takes connections and stays silent."""

    def __init__(self, answer: bytes | None, port: int = 0) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", port))
        self._held: list[socket.socket] = []

    def __enter__(self) -> int:
        threading.Thread(target=self._serve, daemon=True).start()
        port: int = self._server.getsockname()[1]
        return port

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._held:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            if self._answer is None:
                self._held.append(connection)
                continue
            connection.recv(4)
            connection.sendall(self._answer)
            connection.close()


def test_many_nodes_with_long_names_are_read(connect: Connect, states: States) -> None:
    """More than a server accepts in one request: it would close the connection, each time that one asks."""
    session = connect(on_state=states)
    names = [f"/{number:03000}" for number in range(1500)]
    session.create(names[1200], b"here")
    found = session.get_many(names)
    assert [node.data for node in found if node is not None] == [b"here"] and found[1200] is not None
    assert session.children_many(names) == [[]] * len(names)
    assert states.seen == [SessionState.CONNECTED]
