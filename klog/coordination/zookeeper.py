"""klog's ZooKeeper client: blocking calls with a time limit, klog's errors, typed results.

Strategy: kazoo keeps the session and its threads; everything above this file sees `ZNode`s, `Stat`s and klog's errors.
kazoo's own retries are not used for writes, because a lost answer is not a failure (rule Z2): a plain write whose
answer is lost raises `SessionLost`, and `commit` below reads again and compares before it decides.

Rules
- Every call waits at most `operation_timeout_s` for a connection and its answer together. If there has been no
  connection for longer than that, a call waits only AWAY_WAIT_S: calls that come one after the other do not each wait
  the whole limit.
- A read is repeated until the limit; a write is sent once, except by `commit`.
- Callbacks (`on_state`, watches) run in kazoo's threads: they hand over (`loop.call_soon_threadsafe`) and return.
  `on_state` must not call back into this object; a watch may, but holds up other watches meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination import multi_read
from klog.coordination.connect_string import ConnectString
from klog.coordination.multi_read import CHILDREN, DATA, NODES_MAX, MultiRead, parts_of
from klog.coordination.paths import BROKER_IDS, ancestors
from klog.coordination.serving import await_serving, lost_data
from klog.coordination.session import FOLLOWS, SessionState
from klog.coordination.znode_acls import Acl, acls_of
from klog.coordination.znodes import (
    ANY_VERSION,
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    WatchEvent,
    ZNode,
    batches,
    is_left_by,
    put,
    size_bytes,
)
from klog.coordination.zookeeper_access import ZooKeeperServers, access_of
from klog.coordination.zookeeper_errors import translated
from klog.coordination.zookeeper_sockets import SocketHandler
from klog.errors import BadVersion, CannotConnect, KlogError, NodeExists, NoNode, SessionLost, ZooKeeperError
from klog.names import first_few

__all__ = [
    "ANY_VERSION",
    "MULTI_BYTES_MAX",
    "Check",
    "Create",
    "Delete",
    "Operation",
    "SetData",
    "Stat",
    "WatchEvent",
    "ZNode",
    "ZooKeeper",
    "batches",
    "put",
    "size_bytes",
]

_log = logging.getLogger("klog.zookeeper")

LOOKED_AT_MAX = 100
"""Folders, and chroots in each, where a hint looks for clusters."""
NAMED_MAX = 3
_kazoo_log = logging.getLogger("klog.zookeeper.kazoo")
_kazoo_log.addFilter(lambda record: record.levelno >= logging.ERROR or _log.isEnabledFor(logging.DEBUG))
"""kazoo warns at every attempt to connect, twice a second without ZooKeeper; `on_state` has reported it once."""

RECONNECT_DELAY_MAX_S = 0.5
"""kazoo's back-off grows to a minute by default: a broker would be late to notice that ZooKeeper is back."""
LOST_EVERY_S = 1.0
"""Interval of checks whether an absent ZooKeeper has lost its data."""
AWAY_WAIT_S = 0.2
"""Also the pause between a caller's repeated attempts."""


K = TypeVar("K")

Watch = Callable[[WatchEvent], None]
OnState = Callable[[SessionState], None]
Trace = Callable[[str, str, float], None]
"""Called with operation, path and milliseconds after every request."""


class _Away(SessionLost):
    """Nothing was sent: there was no connection in time."""


class ZooKeeper:
    """One session. Thread-safe; never called from an event loop's thread, as every call may block."""

    def __init__(
        self,
        connect_string: str,
        session_timeout_ms: int = 6000,
        on_state: OnState | None = None,
        *,
        operation_timeout_s: float | None = None,
        trace: Trace | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.address = ConnectString.parse(connect_string)
        self.access = access_of(connect_string)
        """The session's credentials, and the ACLs of what it creates (`klog.coordination.znode_acls`)."""
        self.session_timeout_ms = session_timeout_ms
        self.operation_timeout_s = operation_timeout_s if operation_timeout_s else session_timeout_ms / 1000
        self._on_state = on_state
        self._trace = trace
        self.clock = clock
        """Dates what is written through this session, and measures its waits."""
        self._state: SessionState | None = None
        self._connected = threading.Event()
        self._session_id = 0
        self._away_from_s: float | None = None
        """Since when the session has been disconnected."""
        self._stopping = False
        self._starting = threading.Lock()
        self._multi_read = False
        self._client = KazooClient(
            hosts=str(self.address),
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=RECONNECT_DELAY_MAX_S),
            logger=_kazoo_log,
            auth_data=[("digest", f"{self.access.username}:{self.access.password}")]
            if self.access.is_authenticated
            else None,
            handler=SocketHandler(self.access.context),
            use_ssl=self.access.context is not None,
        )
        self._client.add_listener(self._state_changed)

    # --- The session --------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 6.0, *, create_chroot: bool = False, patient: bool = True) -> None:
        """Connect. Raises CannotConnect if no server serves within `timeout_s`; NoNode if the chroot is missing.

        Not `patient`, for a command that a user waits for: a server that refuses is not asked again, and if all do, the
        call fails. A broker is patient: its ZooKeeper may be booting beside it.

        Waits for a server that reports to serve before the session begins: kazoo's handshake with a server that listens
        but does not serve yet hangs for a whole session time-out.
        """
        deadline = self.clock.monotonic_s() + timeout_s
        context = self.access.context
        wrong, answer = await_serving(self.address, context, self.clock, deadline, patient=patient)
        self._multi_read = multi_read.is_known_to(answer)
        waited = f"did not answer within {timeout_s:g} s"
        if wrong and self.clock.monotonic_s() < deadline:
            waited = "does not serve"
        if not wrong:
            with self._starting:  # kazoo cannot be stopped in the middle of its start
                if self._stopping:
                    raise CannotConnect(f"the session with ZooKeeper {self.address} was given up while it began")
                self._client.start_async()
            if not self._connected.wait(max(0.0, deadline - self.clock.monotonic_s())):
                wrong = "no session was granted"
                # kazoo leaves a handshake only after a session's time-out; the caller need not wait for that.
                threading.Thread(target=self.stop, name="zookeeper-stop", daemon=True).start()
        if wrong:
            raise CannotConnect(
                f"ZooKeeper at {self.address} {waited}: {wrong}",
                hint="is it running (klog zookeeper status), is the address right, and does it "
                + ("want TLS there (zookeeper.ssl.client.enable)?" if context is None else "speak TLS there?"),
            )
        if self.address.chroot:
            try:
                self._check_chroot(create_chroot, max(1.0, deadline - self.clock.monotonic_s()))
            except BaseException:
                self.stop()
                raise

    def _check_chroot(self, create: bool, timeout_s: float) -> None:
        if self.exists("/") is not None:
            return
        if not create:
            raise NoNode(
                f"ZooKeeper at {self.address.servers_text} has no chroot {self.address.chroot}",
                hint=f"{self._clusters_here()}. A chroot is made by a broker's start, by no other command",
            )
        # kazoo puts the chroot in front of every path, so it takes a session without one to make it.
        # Folders above it may be another cluster's too, so they stay as ZooKeeper makes them.
        with self._outside() as outside:
            outside.start(timeout_s)
            outside.ensure_paths(ancestors(self.address.chroot))
        self.create_missing(["/"])

    def _outside(self) -> ZooKeeper:
        """Another session, without the chroot."""
        servers = ZooKeeperServers(self.address.servers_text, replace(self.access, sets_acls=False))
        return ZooKeeper(servers, self.session_timeout_ms)

    def _clusters_here(self) -> str:
        """A hint with the addresses that have a cluster, of chroots of at most two parts."""
        found = []
        try:
            with self._outside() as outside:
                outside.start(patient=False)
                tops = [f"/{name}" for name in outside.children("/")[:LOOKED_AT_MAX]]
                below = zip(tops, outside.children_many(tops), strict=True)
                chroots = ["", *tops, *(f"{top}/{name}" for top, names in below for name in names[:LOOKED_AT_MAX])]
                there = outside.exists_many([chroot + BROKER_IDS for chroot in chroots])
                found = [chroot for chroot, stat in zip(chroots, there, strict=True) if stat is not None]
        except KlogError:
            pass  # a client that may not read there gets a shorter hint
        if not found:
            return "check the path behind the last server"
        addresses = [outside.address.servers_text + chroot for chroot in found]
        return f"there is a cluster at {first_few(addresses, NAMED_MAX)}: `klog status -z {addresses[0]}`"

    def check_cluster(self) -> None:
        """Raise NoNode without a cluster: no broker, klog's or 0.8's, has ever registered."""
        if self.exists(BROKER_IDS) is None:
            raise NoNode(f"ZooKeeper at {self.address} has no cluster: no {BROKER_IDS}", hint=self._clusters_here())

    def stop(self) -> None:
        """End the session: its ephemeral nodes are removed at once. May be called twice."""
        with self._starting:
            if self._stopping:
                return
            self._stopping = True
        try:
            self._client.stop()
            self._client.close()
        except kazoo_errors.WriterNotClosedException:
            # kazoo gave up after ten seconds: the server hung in the middle of a handshake. The threads are daemons,
            # and the session ends by its time-out.
            _log.warning("the session with ZooKeeper %s could not be closed; it ends by its time-out", self.address)
        self._connected.clear()

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def state(self) -> SessionState | None:
        """None before the first connection."""
        return self._state

    @property
    def session_id(self) -> int:
        """The id of the session that has our ephemeral nodes, also while it is suspended; 0 before and after it.

        kazoo's own knows none while there is no connection: whoever had read a node of ours in that moment would take
        it for another's, and a controller would follow itself from then on."""
        return self._session_id

    def _state_changed(self, state: str) -> None:
        """kazoo's connection thread."""
        now = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
            KazooState.LOST: SessionState.EXPIRED,
        }[state]
        if now is SessionState.CONNECTED:
            self._session_id = _unsigned(self._client.client_id[0])
            self._away_from_s = None
            self._connected.set()
        else:
            self._session_id = 0 if now is SessionState.EXPIRED else self._session_id
            self._connected.clear()
            if self._away_from_s is None:
                self._away_from_s = self.clock.monotonic_s()
                threading.Thread(target=self._look_for_lost_data, name="zookeeper-lost", daemon=True).start()
        if self._stopping or now not in FOLLOWS[self._state]:
            return
        self._state = now
        if self._on_state is not None:
            self._on_state(now)

    def _look_for_lost_data(self) -> None:
        """While disconnected: check whether ZooKeeper has lost changes that this session has seen.

        A server refuses sessions that have seen changes which it does not know, since it may lag behind. If the leader
        knows less than we do, its data are lost or set back, no server will ever accept us, and kazoo would retry for
        ever. So this resets what we have seen: we are accepted, and learn that our session has expired.
        """
        away_from_s = self._away_from_s
        while not self._connected.wait(LOST_EVERY_S) and not self._stopping and self._away_from_s == away_from_s:
            seen = self._client.last_zxid
            found = lost_data(self.address, self.access.context, seen)
            if found is not None:
                text = "ZooKeeper %s:%d has lost data: its last change is %#x, and we have seen %#x"
                _log.error(text, *found, seen)
                self._client.last_zxid = 0

    # --- Reads --------------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> ZNode:
        """Raises NoNode. A watch fires once, for a change of the data or the node's end."""
        data, stat = self._read("get", path, lambda: self._client.get_async(path, watch=_kazoo_watch(watch)))
        return ZNode(data or b"", _stat(stat))

    def find(self, path: str, watch: Watch | None = None) -> ZNode | None:
        """As `get`, but None when absent; with a watch that then waits for its creation."""
        while True:
            try:
                return self.get(path, watch)
            except NoNode:
                if watch is None or self.exists(path, watch) is None:
                    return None

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = self._read("exists", path, lambda: self._client.exists_async(path, watch=_kazoo_watch(watch)))
        return None if stat is None else _stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Sorted names. Raises NoNode. A watch fires once, for a child created or removed."""
        names: list[str] = self._read(
            "children", path, lambda: self._client.get_children_async(path, watch=_kazoo_watch(watch))
        )
        return sorted(names)

    def find_children(self, path: str, watch: Watch | None = None, *, make: bool = False) -> list[str]:
        """As `children`, but empty for a missing node. With ``make`` the node is created: a cluster may be older."""
        try:
            return self.children(path, watch)
        except NoNode:
            if not make:
                return []
        self.ensure_path(path)
        return self.children(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[ZNode | None]:
        """All of these nodes in one round, in the order given; None for an absent node."""
        found = self._read_each("get", paths, DATA, self._client.get_async)
        return [None if answer is None else ZNode(answer[0] or b"", _stat(answer[1])) for answer in found]

    def find_many(self, keys: Iterable[K], path_of: Callable[[K], str] = str) -> dict[K, ZNode]:
        """The nodes of these keys that exist, in one round, in the order given. By default the keys are paths."""
        wanted = list(keys)
        nodes = self.get_many(list(map(path_of, wanted)))
        return {key: node for key, node in zip(wanted, nodes, strict=True) if node is not None}

    def _read_each(self, operation: str, paths: Sequence[str], what: int, send_one: Callable[[str], Any]) -> list[Any]:
        """By multi-reads; by ``send_one`` where the server does not know them."""
        if not self._multi_read:
            return self._read_many(operation, paths, send_one)
        client = self._client

        def send(part: Sequence[str]) -> Any:
            result = client.handler.async_result()
            client._call(MultiRead([f"{client.chroot}{path}".rstrip("/") or "/" for path in part], what), result)
            return result

        found: list[Any] = []
        for part in parts_of(paths):
            answers = self._read(operation, " ".join(part), partial(send, part))
            for path, answer in zip(part, answers, strict=True):
                if isinstance(answer, Exception):
                    raise translated(answer, operation, path, str(self.address), self.access) from answer
            found += answers
        return found

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """As `children` of each, in one round; an empty list for a missing node."""
        found = self._read_each("children", paths, CHILDREN, self._client.get_children_async)
        return [[] if names is None else sorted(names) for names in found]

    def exists_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Stat | None]:
        """As `exists` of each, in rounds of a thousand; the one watch fires once for each path."""
        seen_by = _kazoo_watch(watch)
        found: list[Any] = []
        for at in range(0, len(paths), NODES_MAX):
            part = paths[at : at + NODES_MAX]
            found += self._read_many("exists", part, lambda path: self._client.exists_async(path, watch=seen_by))
        return [None if stat is None else _stat(stat) for stat in found]

    def _read_many(
        self,
        operation: str,
        paths: Sequence[str],
        send: Callable[[str], Any],
        absent: tuple[type[Exception], ...] = (kazoo_errors.NoNodeError,),
    ) -> list[Any]:
        """One answer per path, None for NoNode; repeats the whole round after a lost connection."""
        deadline = self.clock.monotonic_s() + self.operation_timeout_s
        while True:
            try:
                return self._once(operation, paths, send, absent, deadline)
            except SessionLost as error:
                if isinstance(error, _Away) or self._stopping or self.clock.monotonic_s() >= deadline:
                    raise

    def sync(self, path: str) -> None:
        """Bring the server up to date: later reads see every write done before, by any client."""
        self._read("sync", path, lambda: self._client.sync_async(path))

    # --- Writes: sent once --------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = False) -> str:
        """Returns the created path. NodeExists, NoNode (no parent); SessionLost: it may or may not exist."""
        created: str
        try:
            created = self._write(
                "create", path, lambda: self._client.create_async(path, data, self._acl(path), ephemeral=ephemeral)
            )
        except NoNode:
            if not parents:
                raise
            self.ensure_paths(ancestors(path)[-1:])
            return self.create(path, data, ephemeral=ephemeral)
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """BadVersion, NoNode; SessionLost: it may or may not be written."""
        return _stat(self._write("set", path, lambda: self._client.set_async(path, data, version)))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """BadVersion, NoNode, NodeExists (it has children); SessionLost: it may or may not be gone."""
        self._write("delete", path, lambda: self._client.delete_async(path, version))

    def remove(self, path: str) -> None:
        """Delete the node if it exists and has no children."""
        try:
            self.delete(path)
        except (NoNode, NodeExists):
            pass

    def ensure_path(self, path: str) -> None:
        """Create a persistent node and those above it, if missing; repeated until the limit, which does no harm."""
        self.ensure_paths((path,))

    def ensure_paths(self, paths: Sequence[str]) -> None:
        """As `ensure_path` of each, in two rounds: read which are missing, then create those."""
        folders = dict.fromkeys(folder for path in paths for folder in (*ancestors(path), path))
        there = self.find_many(folders)
        self.create_missing([folder for folder in folders if folder not in there])

    def create_missing(self, paths: Sequence[str], data: bytes = b"") -> None:
        """Create persistent nodes, or accept existing ones, a thousand at once. Those without a parent are left out."""
        for at in range(0, len(paths), NODES_MAX):
            self._read_many("create", paths[at : at + NODES_MAX], lambda path: self._make(path, data))

    def _make(self, path: str, data: bytes) -> Any:
        """Create a persistent node, or accept an existing one; ZooKeeper executes a session's requests in order."""
        result = self._client.handler.async_result()

        def made(of: Any) -> None:
            if isinstance(of.exception, kazoo_errors.NodeExistsError) or of.exception is None:
                result.set(path)
            else:
                result.set_exception(of.exception)

        self._client.create_async(path, data, self._acl(path)).rawlink(made)
        return result

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    def acls_many(self, paths: Sequence[str], *, readable: bool = False) -> list[Sequence[Acl] | None]:
        """The ACL of each node in one round; None for a missing node. An ACL that the session may not read raises
        NotAllowedByZooKeeper, or is None with ``readable``; digests in one that it may not change are x."""
        absent = (kazoo_errors.NoNodeError, *((kazoo_errors.NoAuthError,) if readable else ()))
        found = self._read_many("acl", paths, self._client.get_acls_async, absent)
        return [
            None if one is None else tuple(Acl(acl.perms, acl.id.scheme, acl.id.id) for acl in one[0]) for one in found
        ]

    def set_acls_many(self, wanted: Sequence[tuple[str, Sequence[Acl]]]) -> None:
        """Set the ACL of each node in one round, repeated until the limit, which does no harm. Missing nodes are
        skipped."""
        by_path = {path: [_kazoo_acl(one) for one in acls] for path, acls in wanted}
        self._read_many("set_acl", list(by_path), lambda path: self._client.set_acls_async(path, by_path[path]))

    def _acl(self, path: str) -> list[ACL] | None:
        """The ACL of a node that this session creates; None: open."""
        identities = self.access.identities if self.access.sets_acls else None
        return None if identities is None else [_kazoo_acl(one) for one in acls_of(path, identities)]

    def multi(self, operations: Sequence[Operation]) -> None:
        """All or nothing.

        Raises the first failing operation's error, with its path; SessionLost: all or nothing may have happened;
        ZooKeeperError above MULTI_BYTES_MAX (rule Z3): see `batches`.
        """
        size = sum(map(self.size_bytes, operations))
        if size > MULTI_BYTES_MAX:
            raise ZooKeeperError(f"a multi of {len(operations)} operations has {size} bytes; at most {MULTI_BYTES_MAX}")
        if not operations:
            return

        def send() -> Any:
            transaction = self._client.transaction()
            for operation in operations:
                match operation:
                    case Create(path, data, ephemeral, sequence):
                        transaction.create(path, data, self._acl(path), ephemeral=ephemeral, sequence=sequence)
                    case SetData(path, data, version):
                        transaction.set_data(path, data, version)
                    case Delete(path, version):
                        transaction.delete(path, version)
                    case Check(path, version):
                        transaction.check(path, version)
            return transaction.commit_async()

        outcomes: list[Any] = self._write("multi", operations[0].path, send)
        for operation, outcome in zip(operations, outcomes, strict=True):
            # Operations before and after the failed one were rolled back; find the failed one.
            if isinstance(outcome, Exception) and not isinstance(
                outcome, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
            ):
                what = f"multi: {type(operation).__name__.lower()}"
                raise translated(outcome, what, operation.path, access=self.access) from outcome
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            raise ZooKeeperError(f"multi on {operations[0].path} was rolled back without a reason")

    # --- Writes: decided although an answer may be lost (rule Z2) -----------------------------------------------------

    def commit(self, operations: Sequence[Operation], proof: Sequence[Operation] | None = None) -> None:
        """A multi, sent again after a lost answer. If that fails, the nodes tell whether the first one succeeded.

        ``proof``: the operations whose nodes are read; by default all. All or nothing is done, so one suffices that
        nobody else can have done; an empty sequence: what was done can be done again.
        """
        lost = False
        deadline = self.clock.monotonic_s() + self.operation_timeout_s
        while True:
            try:
                self.multi(operations)
                return
            except SessionLost as error:
                lost = True
                if isinstance(error, _Away) or self.clock.monotonic_s() >= deadline:
                    raise
            except (BadVersion, NodeExists, NoNode):
                if lost and self.holds(operations if proof is None else proof):
                    return
                raise

    def commit_each(self, groups: Iterable[Sequence[Operation]], fence: Sequence[Operation] = ()) -> None:
        """`commit` groups of operations in their `batches`, each behind the fence."""
        for batch in self.batches(groups, fence):
            self.commit([*fence, *batch], batch)

    def batches(
        self, groups: Iterable[Sequence[Operation]], fence: Sequence[Operation] = ()
    ) -> Iterator[list[Operation]]:
        """Groups of operations, as many in each list as a multi holds behind the fence (rule Z3)."""
        return batches(groups, self.size_bytes, MULTI_BYTES_MAX - sum(map(self.size_bytes, fence)))

    def size_bytes(self, operation: Operation) -> int:
        """`znodes.size_bytes` in this chroot."""
        return size_bytes(operation, self.address.chroot)

    def holds(self, operations: Sequence[Operation]) -> bool:
        """Whether each node is as these operations, at least one, leave it: with their data, at the next version.

        Another client's equal write at that version looks the same, and has wanted the same.
        """
        last = {one.path: one for one in operations if not isinstance(one, Check)}
        nodes = self.find_many(last)
        return bool(last) and all(is_left_by(one, nodes.get(path)) for path, one in last.items())

    # --- Below --------------------------------------------------------------------------------------------------------

    def _read(self, operation: str, path: str, send: Callable[[], Any]) -> Any:
        return self._read_many(operation, [path], lambda _: send(), absent=())[0]

    def _write(self, operation: str, path: str, send: Callable[[], Any]) -> Any:
        deadline = self.clock.monotonic_s() + self.operation_timeout_s
        return self._once(operation, [path], lambda _: send(), (), deadline)[0]

    def _once(
        self,
        operation: str,
        paths: Sequence[str],
        send: Callable[[str], Any],
        absent: tuple[type[Exception], ...],
        deadline: float,
    ) -> list[Any]:
        self._await_connected(deadline, f"{operation} {paths[0]}" if len(paths) == 1 else operation)
        started = self.clock.monotonic_s()
        answers: list[Any] = []
        for path, result in [(path, send(path)) for path in paths]:
            with self._translated(operation, path, started):
                try:
                    answers.append(result.get(timeout=max(0.001, deadline - self.clock.monotonic_s())))
                except absent:
                    answers.append(None)
        return answers

    def _await_connected(self, deadline: float, what: str) -> None:
        """Wait for a connection: without one, kazoo would queue a request and send it whenever it reconnects."""
        away_from_s = self._away_from_s
        if away_from_s is not None:
            patience_to_s = max(away_from_s + self.operation_timeout_s, self.clock.monotonic_s() + AWAY_WAIT_S)
            deadline = min(deadline, patience_to_s)
        if self._stopping or not self._connected.wait(max(0.0, deadline - self.clock.monotonic_s())):
            state = "closed" if self._stopping else self._state.value if self._state else "not connected"
            raise _Away(f"ZooKeeper at {self.address}: {what}: the session is {state}", hint="is ZooKeeper running?")

    @contextmanager
    def _translated(self, operation: str, path: str, traced_from: float) -> Iterator[None]:
        try:
            yield
        except (kazoo_errors.KazooException, KazooTimeoutError) as error:
            raise translated(error, operation, path, str(self.address), self.access) from error
        finally:
            if self._trace is not None:
                self._trace(operation, path, (self.clock.monotonic_s() - traced_from) * 1000)


@dataclass(frozen=True, slots=True)
class _KazooWatch:
    """A watch as kazoo keeps it, in a set: the same watch, set twice on a node, fires once."""

    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        self.watch(WatchEvent(str(event.type), event.path or ""))


def _kazoo_watch(watch: Watch | None) -> _KazooWatch | None:
    return None if watch is None else _KazooWatch(watch)


def _kazoo_acl(acl: Acl) -> ACL:
    return ACL(acl.permissions, Id(acl.scheme, acl.identity))


def _stat(stat: Any) -> Stat:
    return Stat(
        version=stat.version,
        children_version=stat.cversion,
        acl_version=stat.aversion,
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        children_zxid=stat.pzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        owner_session=_unsigned(stat.ephemeralOwner),
        data_bytes=stat.dataLength,
        children=stat.numChildren,
    )


def _unsigned(session: int) -> int:
    """Session ids are 64 bits; kazoo reads them as signed, zkCli and ZooKeeper's logs print them as unsigned hex."""
    return session & 0xFFFF_FFFF_FFFF_FFFF
