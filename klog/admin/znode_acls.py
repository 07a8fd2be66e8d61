"""ZooKeeper's tree closed and opened: the ACL of each node as `klog.coordination.znode_acls` says, or none.

A walk sets the list of a node before it looks at what is below it: no other client can put an open node there then.
It changes what is not yet as it is to be, and can be ended anywhere and begun again. Walks follow one another until one
finds nothing to change: that is the proof.

A client that writes without credentials is locked out by it. Live brokers and consumers of the paper show by the ACL of
their own ephemeral node whether they have them (`unready`). Those nodes end with them, so opening the tree leaves them
as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.coordination import cluster, paths
from klog.coordination.znode_acls import OPEN, Acl, Identities, acls_of, is_open
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import Refused, UsageError
from klog.names import first_few
from klog.security.errors import NotAllowedByZooKeeper

AT_ONCE: Final = 1_000
WALKS_MAX: Final = 4
"""The second finds nothing to change, unless something makes open nodes meanwhile."""
SYSTEM: Final = "/zookeeper"
"""ZooKeeper's own nodes."""
UNCHANGEABLE: Final = "/zookeeper/config"
"""The servers of the ensemble: its ACL lets everybody read, and cannot be changed."""

_OTHER_KAFKAS: Final = (
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/delegation_token",
    "/feature",
    "/cluster",
    "/migration",
)


@dataclass(frozen=True, slots=True)
class ZnodeAclRow:
    """The nodes at and below one of the chroot's children, or its root alone.

    ``changed``: whose list was set, or would be in a dry run. ``left``: those that were found wrong again by the last
    walk.
    """

    path: str
    znodes: int
    changed: int
    left: int


# --- Closed, or opened ------------------------------------------------------------------------------------------------


def owner_of(zookeeper: ZooKeeper) -> Identities:
    """Whose the nodes are to be: the session's. UsageError unless it is the owner's."""
    identities = zookeeper.access.identities
    if identities is None:
        raise UsageError(
            "the owner's credentials in ZooKeeper are missing: zookeeper.username and zookeeper.password",
            hint="`klog security init` writes them into client.properties: --client-config FILE, or client_config of a "
            "profile",
        )
    if zookeeper.access.own != identities.owner:
        raise UsageError(
            f"zookeeper.username={zookeeper.access.username} is not the owner of zookeeper.acl.owner, who alone may "
            "change ACLs",
            hint="use the administrator's client.properties",
        )
    return identities


def unready(zookeeper: ZooKeeper, identities: Identities) -> list[str]:
    """Live brokers and paper's consumers whose own node is not closed as the cluster's are to be: the paths."""
    alive = [paths.broker(int(one)) for one in _children(zookeeper, [paths.BROKER_IDS]) if one.isdecimal()]
    groups = [f"{paths.CONSUMERS}/{one}/ids" for one in _children(zookeeper, [paths.CONSUMERS])]
    for at in range(0, len(groups), AT_ONCE):
        part = groups[at : at + AT_ONCE]
        alive += [
            f"{top}/{one}" for top, names in zip(part, zookeeper.children_many(part), strict=True) for one in names
        ]
    return [
        path
        for path, found in _acls(zookeeper, alive)
        if found is not None and not _same(found, acls_of(path, identities))
    ]


def check_ready(zookeeper: ZooKeeper, identities: Identities) -> None:
    """Refused, naming who would be locked out."""
    found = unready(zookeeper, identities)
    if found:
        raise Refused(
            f"{len(found)} live brokers and consumers do not write as {identities.owner.partition(':')[0]!r} does, and "
            f"would be locked out: {first_few(found, 5)}",
            hint="restart them, one after the other, with zookeeper.username, zookeeper.password and "
            "zookeeper.set.acl=true (docs/security.md); --force closes ZooKeeper all the same",
        )


def close_top(zookeeper: ZooKeeper) -> None:
    """Close the root of the chroot, and ZooKeeper's own nodes where there is none: what a new cluster does not make."""
    identities = owner_of(zookeeper)
    tops = ["/"] if zookeeper.address.chroot else ["/", SYSTEM, f"{SYSTEM}/quota"]
    wrong = [
        (path, acls_of(path, identities))
        for path, found in _acls(zookeeper, tops)
        if found is not None and not _same(found, acls_of(path, identities))
    ]
    zookeeper.set_acls_many(wrong)


def begin(zookeeper: ZooKeeper) -> None:
    """Close the top of a cluster that is new. In one that is there and open, this session makes open nodes too: its
    brokers may not have the credentials yet, and `klog security zookeeper` closes all of it when they have."""
    if not zookeeper.access.sets_acls:
        return
    if cluster.cluster_id(zookeeper) is None:
        close_top(zookeeper)
    elif "/" in open_ones(zookeeper):
        zookeeper.access = replace(zookeeper.access, sets_acls=False)


class Walks:
    """Walks over the tree of one session, until nothing is left to change. Blocks; ``seen`` may be read meanwhile."""

    def __init__(self, zookeeper: ZooKeeper, identities: Identities | None, *, dry_run: bool = False) -> None:
        """``identities`` None: open all of it."""
        self._zookeeper = zookeeper
        self._identities = identities
        self._dry_run = dry_run
        self.seen = 0
        self.others: list[str] = []
        """Children of ZooKeeper's root that are not klog's, nor Kafka's: they stay as they are."""
        self._rows: dict[str, list[int]] = {}

    def run(self) -> list[ZnodeAclRow]:
        """A row for the root and each child of it."""
        for _ in range(1 if self._dry_run else WALKS_MAX):
            counts: dict[str, list[int]] = {}
            self._walk(counts)
            for top, (znodes, wrong) in counts.items():
                before = self._rows.get(top, [0, 0, 0])
                left = 0 if self._dry_run else wrong
                self._rows[top] = [znodes, before[1] + wrong, left]
            if not any(wrong for _, wrong in counts.values()):
                break
        return [ZnodeAclRow(top, *row) for top, row in sorted(self._rows.items())]

    def _walk(self, counts: dict[str, list[int]]) -> None:
        self.seen = 0
        level = ["/"]
        while level:
            below: list[str] = []
            for at in range(0, len(level), AT_ONCE):
                part = level[at : at + AT_ONCE]
                self._set(part, counts)
                for path, names in zip(part, self._zookeeper.children_many(part), strict=True):
                    below += self._ours(names) if path == "/" else [f"{path}/{name}" for name in names]
                self.seen += len(part)
            level = below

    def _ours(self, names: Sequence[str]) -> list[str]:
        """Under a chroot everything is the cluster's; under ZooKeeper's own root there may be others."""
        found = [f"/{name}" for name in names]
        if self._zookeeper.address.chroot:
            return found
        tops = _tops()
        self.others = [one for one in found if one not in tops and one != SYSTEM]
        return [one for one in found if one in tops or (one == SYSTEM and not self.others)]

    def _set(self, part: Sequence[str], counts: dict[str, list[int]]) -> None:
        changes = []
        for path, found in _acls(self._zookeeper, part):
            if found is None or path == UNCHANGEABLE:
                continue
            wanted = OPEN if self._identities is None else acls_of(path, self._identities)
            count = counts.setdefault("/" + path.split("/")[1], [0, 0])
            count[0] += 1
            if not _same(found, wanted) and not (self._identities is None and _is_proof(path)):
                count[1] += 1
                changes.append((path, wanted))
        if changes and not self._dry_run:
            self._zookeeper.set_acls_many(changes)


# --- Found by `klog status` -------------------------------------------------------------------------------------------


def open_ones(zookeeper: ZooKeeper) -> list[str]:
    """Of the nodes that every cluster has those that everybody may change: a sample, not the tree."""
    sample = [paths.SECRET, paths.USER_CONFIGS, paths.ACLS, paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.CLUSTER_ID]
    sample += ["/", *sorted({folder for path in paths.PERSISTENT for folder in (*paths.ancestors(path), path)})]
    lists = zip(sample, zookeeper.acls_many(sample, readable=True), strict=True)
    return [path for path, found in lists if found is not None and is_open(found)]


def has_users(zookeeper: ZooKeeper) -> bool:
    """Whether there are users who log in; False where the session may not look."""
    try:
        return any(zookeeper.children_many([paths.USER_CONFIGS]))
    except NotAllowedByZooKeeper:
        return False


# --- Below ------------------------------------------------------------------------------------------------------------


def _tops() -> set[str]:
    """The children of a root that are klog's or Kafka's."""
    named = (value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str))
    return {"/" + path.split("/")[1] for path in named} | set(_OTHER_KAFKAS)


def _acls(zookeeper: ZooKeeper, wanted: Sequence[str]) -> Iterator[tuple[str, Sequence[Acl] | None]]:
    for at in range(0, len(wanted), AT_ONCE):
        part = wanted[at : at + AT_ONCE]
        yield from zip(part, zookeeper.acls_many(part), strict=True)


def _children(zookeeper: ZooKeeper, parents: Sequence[str]) -> list[str]:
    return [name for names in zookeeper.children_many(parents) for name in names]


def _is_proof(path: str) -> bool:
    """Whether it is a live broker's or consumer's own node, whose ACL shows what it has (`unready`): it stays so."""
    parts = path.split("/")
    is_member = parts[1] == "consumers" and parts[3:4] == ["ids"] and len(parts) == 5
    return is_member or (parts[1:3] == ["brokers", "ids"] and len(parts) == 4)


def _same(found: Sequence[Acl], wanted: Sequence[Acl]) -> bool:
    return set(found) == set(wanted)
