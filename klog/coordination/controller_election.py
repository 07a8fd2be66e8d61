"""The controller's election: ``/controller`` (ephemeral) and the fence ``/controller_epoch`` (rule Z1).

``/controller`` is ``{"version":1,"brokerid":N,"timestamp":"ms"}``; ``/controller_epoch`` a plain number. A delete or
set of ``/controller`` by version would fence nothing: the node is re-created, and its version starts at 0 each time.
So one multi creates it and raises the epoch, and every write of a controller, its own removal included, is a multi that
starts with a check of the epoch's version.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Delete, Operation, SetData, Watch, ZNode, ZooKeeper, put
from klog.errors import BadVersion, NodeExists, NoNode, SessionLost

ELECTION_TRIES = 20
"""Every lost race means that another broker has won one; many in a row are a bug."""


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """A broker's term as controller. `session` owns `/controller`, whose node version is `version`."""

    broker_id: int
    epoch: int
    epoch_version: int
    timestamp_ms: int
    session: int
    version: int = 0

    @property
    def fence(self) -> Check:
        """Begins every multi of this controller: fails once another is elected."""
        return Check(paths.CONTROLLER_EPOCH, self.epoch_version)


def current(zookeeper: ZooKeeper, watch: Watch | None = None) -> ControllerTerm | None:
    """The current term, or None; the watch fires when `/controller` changes."""
    if watch is not None:
        # Set the watch before the read: it fires for later changes, and the read sees earlier ones.
        zookeeper.exists(paths.CONTROLLER, watch)
    epoch, node = _read(zookeeper)
    return None if node is None or epoch is None else _term(node, epoch)


def written_epoch(zookeeper: ZooKeeper, at_least: int) -> int:
    """The number in `/controller_epoch`, 0 if the node does not exist.

    If it is below ``at_least``, the ZooKeeper server may lag behind: this syncs it and reads again.
    """
    epoch = _epoch(zookeeper)
    if epoch < at_least:
        zookeeper.sync(paths.CONTROLLER_EPOCH)
        epoch = _epoch(zookeeper)
    return epoch


def restore_epoch(zookeeper: ZooKeeper, epoch: int) -> None:
    """Make the next controller's epoch larger than this one; for rebuilt registries."""
    path = paths.CONTROLLER_EPOCH
    node = zookeeper.find(path)
    if node is not None and entries.number(path, node.data) >= epoch:
        return
    zookeeper.commit([put(path, str(epoch).encode(), node)])


def _epoch(zookeeper: ZooKeeper) -> int:
    node = zookeeper.find(paths.CONTROLLER_EPOCH)
    return 0 if node is None else entries.number(paths.CONTROLLER_EPOCH, node.data)


def _read(zookeeper: ZooKeeper) -> tuple[ZNode | None, ZNode | None]:
    """`/controller_epoch` and `/controller` at one moment.

    ZooKeeper has no atomic read of two nodes. But the epoch changes with each new `/controller`, so if it is the same
    before and after, the node in between belongs to it.
    """
    while True:
        before, node, after = zookeeper.get_many([paths.CONTROLLER_EPOCH, paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        if (before and before.stat.version) == (after and after.stat.version):
            return before, node


def elect(zookeeper: ZooKeeper, broker_id: int, instead_of: ControllerTerm | None = None) -> ControllerTerm:
    """Become controller unless there is one. Returns the term of the controller: ours when `term.session` is this
    session's.

    ``instead_of``: a term that is over because its broker is dead. Its `/controller`, if it still exists, is replaced
    in the multi that raises the epoch. After a lost answer this reads again: a `/controller` of this session is ours.
    """
    for _ in range(ELECTION_TRIES):
        epoch, node = _read(zookeeper)
        if epoch is None:
            zookeeper.create_missing([paths.CONTROLLER_EPOCH], b"0")
            continue
        replaced: list[Operation] = []
        if node is not None:
            found = _term(node, epoch)
            if instead_of is None or (found.epoch, found.session) != (instead_of.epoch, instead_of.session):
                return found
            replaced = [Delete(paths.CONTROLLER)]
        session = zookeeper.session_id
        raised = entries.number(paths.CONTROLLER_EPOCH, epoch.data) + 1
        timestamp_ms = zookeeper.clock.now_ms()
        entry = entries.encode({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})
        try:
            zookeeper.multi(
                [
                    SetData(paths.CONTROLLER_EPOCH, str(raised).encode(), epoch.stat.version),
                    *replaced,
                    Create(paths.CONTROLLER, entry, ephemeral=True),
                ]
            )
        except (BadVersion, NodeExists, NoNode, SessionLost):
            continue
        if zookeeper.session_id == session:
            return ControllerTerm(broker_id, raised, epoch.stat.version + 1, timestamp_ms, session)
    raise SessionLost(f"no controller could be elected in {ELECTION_TRIES} tries at ZooKeeper {zookeeper.address}")


def resign(zookeeper: ZooKeeper, term: ControllerTerm) -> None:
    """Resign: remove `/controller`; BadVersion or NoNode when the term is already over."""
    zookeeper.commit([term.fence, Delete(paths.CONTROLLER)])


def _term(node: ZNode, epoch: ZNode) -> ControllerTerm:
    entry = entries.JsonNode(paths.CONTROLLER, node.data)
    return ControllerTerm(
        broker_id=entry.integer("brokerid"),
        epoch=entries.number(paths.CONTROLLER_EPOCH, epoch.data),
        epoch_version=epoch.stat.version,
        timestamp_ms=entry.integer("timestamp", 0),
        session=node.stat.owner_session,
        version=node.stat.version,
    )
