"""A model of a ZooKeeper server, beneath klog's own client (`klog.coordination.zookeeper`), which is the real one.

It stands in for kazoo's client: one tree of nodes in memory, one order of all writes, versions, multis, ephemerals,
sessions and watches. A request takes the way there, waits its turn, occupies the server, and takes the way back; a
write's answer also waits for the flush of the transaction log, which holds up no other (`Measured`). Requests of one
session are answered in their order. A server alone: an ensemble adds a round trip to each write.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from bench.simulation.costs import Assumed, Measured
from bench.simulation.virtual_time import VirtualClock, VirtualLoop
from klog.coordination.multi_read import DATA, MultiRead
from klog.coordination.zookeeper import Check, Create, Delete, Operation, SetData, ZooKeeper, size_bytes

JUTE_MAX_BYTES = 1024 * 1024
"""A server ends the connection of a client whose request is larger."""


@dataclass(slots=True)
class Node:
    data: bytes
    created_zxid: int
    modified_zxid: int
    owner: int
    version: int = 0
    children_version: int = 0
    children_zxid: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> ZnodeStat:
        return ZnodeStat(
            self.created_zxid,
            self.modified_zxid,
            1_700_000_000_000,
            1_700_000_000_000,
            self.version,
            self.children_version,
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.children_zxid,
        )


Watcher = Callable[[Any], object]


class Event(NamedTuple):
    type: str
    path: str


class Result:
    """kazoo's result of a request: a worker that gets it waits until it is there."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._waiter: Any = None
        self._links: list[Callable[[Any], object]] = []
        self._is_ready = False
        self.value: Any = None
        self.exception: BaseException | None = None

    def set(self, value: Any) -> None:
        self._end(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        if self._is_ready:
            return
        self.value, self.exception, self._is_ready = value, error, True
        for link in self._links:
            link(self)
        if self._waiter is not None:
            self._loop.call_soon(self._waiter.resume)

    def rawlink(self, link: Callable[[Any], object]) -> None:
        if self._is_ready:
            link(self)
        else:
            self._links.append(link)

    def get(self, timeout: float | None = None) -> Any:
        if not self._is_ready:
            worker = self._loop.turns.running
            assert worker is not None, "the loop never waits for ZooKeeper"
            self._waiter = worker
            late = None
            if timeout is not None:
                late = self._loop.call_later(timeout, self.set_exception, KazooTimeoutError("no answer in time"))
            worker.wait()
            if late is not None:
                late.cancel()
        if self.exception is not None:
            raise self.exception
        return self.value


class Server:
    """See the module. ``is_instant``: requests are answered at once and cost nothing, while a cluster is set up."""

    def __init__(self, loop: VirtualLoop, measured: Measured, assumed: Assumed) -> None:
        self.loop = loop
        self.measured = measured
        self.assumed = assumed
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self.counts: Counter[str] = Counter()
        self.largest_bytes = 0
        self.is_instant = False
        self._zxid = 0
        self._free_s = 0.0
        self._numbers = itertools.count(1)
        self._watches: dict[tuple[str, str], set[Watcher]] = {}

    # --- requests -----------------------------------------------------------------------------------------------------

    def connect(self) -> KazooModel:
        """A new session."""
        return KazooModel(self, next(self._numbers))

    def submit(self, client: KazooModel, act: Callable[[], Any], *, busy_s: float, answer_s: float) -> Result:
        """Do ``act`` in its turn; it raises what the client gets instead of its result."""
        loop, result = self.loop, Result(self.loop)
        if self.is_instant:
            self._act(act, result, None)
            return result
        sent_s = loop.time()
        self._free_s = max(self._free_s, sent_s + self.assumed.network_s) + busy_s
        client.answered_s = max(client.answered_s, self._free_s + answer_s + self.assumed.network_s)
        loop.call_at(self._free_s, self._act, act, result, client.answered_s)
        return result

    def _act(self, act: Callable[[], Any], result: Result, answered_s: float | None) -> None:
        with self.loop.uncounted():
            try:
                value, error = act(), None
            except KazooException as raised:
                value, error = None, raised
        deliver = (result.set, value) if error is None else (result.set_exception, error)
        if answered_s is None:
            deliver[0](deliver[1])
        else:
            self.loop.call_at(answered_s, *deliver)

    def occupy(self, requests: int) -> None:
        """So many small reads of other sessions come at once."""
        self.counts["reads of other brokers"] += requests
        now_s = self.loop.time() + self.assumed.network_s
        self._free_s = max(self._free_s, now_s) + requests * self.measured.read_busy_s

    def expire(self, session: int) -> None:
        """The session is over: its ephemeral nodes go."""
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self._zxid += 1
            self._delete(path)

    # --- the tree -----------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watcher | None) -> tuple[bytes, ZnodeStat]:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        self._watch("data", path, watch)
        return node.data, node.stat()

    def exists(self, path: str, watch: Watcher | None) -> ZnodeStat | None:
        node = self.nodes.get(path)
        self._watch("data", path, watch)
        return None if node is None else node.stat()

    def children(self, path: str, watch: Watcher | None) -> list[str]:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        self._watch("children", path, watch)
        return list(node.children)

    def many(self, paths: Sequence[str], what: int) -> list[Any]:
        found: list[Any] = []
        for path in paths:
            node = self.nodes.get(path)
            if node is None:
                found.append(None)
            else:
                found.append((node.data, node.stat()) if what == DATA else list(node.children))
        return found

    def multi(self, session: int, operations: Sequence[Operation]) -> list[Any]:
        """All or nothing: first every operation is checked, as those before it have left the tree."""
        failed = self._first_failure(operations)
        if failed is not None:
            at, error = failed
            self.counts["transactions refused"] += 1
            return [RolledBackError()] * at + [error] + [RuntimeInconsistency()] * (len(operations) - at - 1)
        self._zxid += 1
        self.counts["transactions"] += 1
        self.counts["nodes written"] += sum(not isinstance(one, Check) for one in operations)
        return [self._do(session, one) for one in operations]

    def _first_failure(self, operations: Sequence[Operation]) -> tuple[int, KazooException] | None:
        there: dict[str, bool] = {}
        for at, one in enumerate(operations):
            node = self.nodes.get(one.path)
            is_there = there.get(one.path, node is not None)
            if isinstance(one, Create):
                parent = one.path.rpartition("/")[0] or "/"
                if not there.get(parent, parent in self.nodes):
                    return at, NoNodeError()
                if is_there and not one.sequence:
                    return at, NodeExistsError()
                there[one.path] = True
                continue
            if not is_there:
                return at, NoNodeError()
            if node is not None and one.path not in there and one.version not in (-1, node.version):
                return at, BadVersionError()
            if isinstance(one, Delete):
                if node is not None and node.children:
                    return at, NotEmptyError()
                there[one.path] = False
        return None

    def _do(self, session: int, operation: Operation) -> Any:
        match operation:
            case Create(path, data, ephemeral, sequence):
                parent = self.nodes[path.rpartition("/")[0] or "/"]
                if sequence:
                    path = f"{path}{parent.children_version:010d}"
                self.nodes[path] = Node(data, self._zxid, self._zxid, session if ephemeral else 0)
                parent.children.add(path.rpartition("/")[2])
                parent.children_version += 1
                parent.children_zxid = self._zxid
                self._fire("data", path, "CREATED")
                self._fire("children", path.rpartition("/")[0] or "/", "CHILD")
                return path
            case SetData(path, data, _):
                node = self.nodes[path]
                node.data, node.modified_zxid = data, self._zxid
                node.version += 1
                self._fire("data", path, "CHANGED")
                return node.stat()
            case Delete(path, _):
                self._delete(path)
        return True

    def _delete(self, path: str) -> None:
        del self.nodes[path]
        above = path.rpartition("/")[0] or "/"
        parent = self.nodes[above]
        parent.children.discard(path.rpartition("/")[2])
        parent.children_version += 1
        parent.children_zxid = self._zxid
        for kind in ("data", "children"):
            self._fire(kind, path, "DELETED")
        self._fire("children", above, "CHILD")

    # --- watches ------------------------------------------------------------------------------------------------------

    def _watch(self, kind: str, path: str, watch: Watcher | None) -> None:
        if watch is not None:
            self._watches.setdefault((kind, path), set()).add(watch)

    def _fire(self, kind: str, path: str, what: str) -> None:
        for watch in self._watches.pop((kind, path), ()):
            self.counts["watches fired"] += 1
            self.loop.call_later(self.assumed.network_s, watch, Event(what, path))


class KazooModel:
    """What `klog.coordination.zookeeper` uses of kazoo's client, for one session."""

    chroot = ""

    def __init__(self, server: Server, session: int) -> None:
        self.server = server
        self.session = session
        self.answered_s = 0.0
        self.last_zxid = 0
        self.handler = SimpleNamespace(async_result=lambda: Result(server.loop))

    def _ask(self, act: Callable[[], Any], *, nodes: int = 0) -> Result:
        server, costs = self.server, self.server.measured
        if not server.is_instant:
            server.counts["reads"] += 1
            server.counts["nodes read"] += max(nodes, 1)
            server.loop.meter.charge(costs.client_request_s + nodes * costs.client_node_s)
        busy_s = costs.read_busy_s + nodes * costs.read_node_s
        return server.submit(self, act, busy_s=busy_s, answer_s=costs.read_s)

    def _call(self, request: MultiRead, result: Result) -> None:
        asked = self._ask(lambda: self.server.many(request.paths, request.what), nodes=len(request.paths))
        asked.rawlink(lambda of: result.set(of.value) if of.exception is None else result.set_exception(of.exception))

    def get_async(self, path: str, watch: Watcher | None = None) -> Result:
        return self._ask(lambda: self.server.get(path, watch))

    def exists_async(self, path: str, watch: Watcher | None = None) -> Result:
        return self._ask(lambda: self.server.exists(path, watch))

    def get_children_async(self, path: str, watch: Watcher | None = None) -> Result:
        return self._ask(lambda: self.server.children(path, watch))

    def sync_async(self, path: str) -> Result:
        return self._ask(lambda: path)

    def write_async(self, operations: Sequence[Operation]) -> Result:
        """The outcomes of a multi."""
        server, costs = self.server, self.server.measured
        if not server.is_instant:
            size = sum(size_bytes(one) for one in operations)
            server.largest_bytes = max(server.largest_bytes, size)
            if size > JUTE_MAX_BYTES:
                raise AssertionError(f"a request of {size} bytes: a server would end the connection (rule Z3)")
            server.loop.meter.charge(costs.client_request_s + len(operations) * costs.client_operation_s)
        busy_s = costs.write_busy_s + len(operations) * costs.multi_operation_s
        return server.submit(
            self, lambda: server.multi(self.session, operations), busy_s=busy_s, answer_s=costs.write_s
        )

    def _write_one(self, operation: Operation) -> Result:
        written, result = self.write_async([operation]), Result(self.server.loop)

        def done(of: Any) -> None:
            if of.exception is not None:
                result.set_exception(of.exception)
            elif isinstance(of.value[0], Exception):
                result.set_exception(of.value[0])
            else:
                result.set(of.value[0])

        written.rawlink(done)
        return result

    def create_async(
        self, path: str, data: bytes = b"", acl: object = None, *, ephemeral: bool = False, makepath: bool = False
    ) -> Result:
        folders = [path[:at] for at, one in enumerate(path) if one == "/" and at] if makepath else []
        missing = [Create(folder) for folder in folders if folder not in self.server.nodes]
        if not missing:
            return self._write_one(Create(path, data, ephemeral))
        made, result = self.write_async([*missing, Create(path, data, ephemeral)]), Result(self.server.loop)
        made.rawlink(lambda of: result.set(path) if of.exception is None else result.set_exception(of.exception))
        return result

    def set_async(self, path: str, data: bytes, version: int) -> Result:
        return self._write_one(SetData(path, data, version))

    def delete_async(self, path: str, version: int) -> Result:
        return self._write_one(Delete(path, version))

    def ensure_path_async(self, path: str) -> Result:
        if path in self.server.nodes:
            return self.exists_async(path)
        return self.create_async(path, makepath=True)

    def transaction(self) -> Transaction:
        return Transaction(self)


class Transaction:
    """kazoo's way to put a multi together."""

    def __init__(self, client: KazooModel) -> None:
        self._client = client
        self._operations: list[Operation] = []

    def create(self, path: str, data: bytes, acl: object = None, *, ephemeral: bool, sequence: bool) -> None:
        self._operations.append(Create(path, data, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._operations.append(SetData(path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._operations.append(Delete(path, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(Check(path, version))

    def commit_async(self) -> Result:
        return self._client.write_async(self._operations)


class ModelledZooKeeper(ZooKeeper):
    """klog's client on a session with the model."""

    def __init__(self, server: Server) -> None:
        super().__init__("127.0.0.1:2181", int(server.assumed.session_s * 1000), clock=VirtualClock(server.loop))
        self.model = server.connect()
        self._client = self.model
        self._multi_read = True
        self._connected.set()
        self._session_id = self.model.session

    def end(self) -> None:
        """The session is over."""
        self.model.server.expire(self.model.session)
