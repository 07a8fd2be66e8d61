"""Acts: administrative changes of the cluster, with their author and the state before: ``/klog/acts/<id>``.

    {"version":1,"time":1769940000250,"kind":"settings","client":"klog","host":"10.0.0.7","topic":"t",
     "before":{"retention.ms":"5"},"after":{},"undoes":null}

An act is written in the ZooKeeper transaction that makes the change: neither exists without the other. It is never
changed. ``principal``: of an authenticated client; ``request``: correlation id of the request that made the change. The
id is the time and a random part, in base 36: ids sort by time, and people can type them. ``before`` and ``after`` are
the part of the state that the change replaces, enough to undo it; both are null where they would not fit
(`STATE_BYTES_MAX`). ``undoes``: id of the act that this one undoes.

The controller publishes acts in ``klog.events``; the root node has the transaction of the last published one::

    /klog/acts  {"version":1,"published":4711}

The controller removes old acts beyond `KEPT_MAX`, or `KEPT_BYTES_MAX`: the oldest of the host that has the most. So a
client that makes very many changes displaces its own acts, not those of others.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination import entries, paths
from klog.coordination.zookeeper import Create, Delete, Operation, SetData, Watch, ZNode, ZooKeeper
from klog.errors import BadVersion, KlogError, NodeExists, NoNode, ZooKeeperError

log = logging.getLogger(__name__)

KEPT_MAX: Final = 5_000
"""Some two megabytes."""
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""ZooKeeper holds them in memory."""
LOOKED_AT_EVERY: Final = 100
"""Acts between two checks for old ones."""
FORGOTTEN_AT_ONCE: Final = 2 * LOOKED_AT_EVERY
READ_AT_ONCE: Final = 500
STATE_BYTES_MAX: Final = 64 * 1024
"""Of ``before`` and ``after`` together."""
EVENT_STATE_BYTES_MAX: Final = 2 * 1024
CLIENT_CHARS_MAX: Final = 200
TIME_MS_MAX: Final = 253_402_300_799_999
"""The last of the year 9999."""

ELECTION_ACT: Final = "election"
UNCLEAN_ACT: Final = "unclean-election"
"""Kinds of acts; the states map partitions to leaders."""

RECORDS_ACT: Final = "records-delete"
"""The states map partitions to their start offsets."""

ZNODE_CREATE, ZNODE_SET, ZNODE_DELETE = "znode-create", "znode-set", "znode-delete"
ZNODE_KINDS: Final = frozenset({ZNODE_CREATE, ZNODE_SET, ZNODE_DELETE})
"""Kinds of manual changes of znodes; states: ``{"version":3,"data":".."}``, null if the node does not exist."""

AUTO_CREATE: Final = "auto.create.topics.enable"
"""Prefix of the client id in the act of an automatically created topic."""

OF_CLUSTER: Final = "cluster"
"""The host in the act of a broker that does something for itself, such as creating the topic of events."""

UNDO_CLIENT: Final = "klog-undo-"
"""Prefix of the client id in a request that undoes an act, before the act's id. Kafka's protocol has no better
place."""

_SUBJECTS: Final = {
    **{one: one for one in ("topic", "group", "schema", "broker", "path", "acl", "quota", "user")},
    "broker": "id",
}
"""An act's possible subjects, and their keys in the node."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TIME_CHARS: Final = 8
_RANDOM_CHARS: Final = 4


class Actor(NamedTuple):
    """The author of a change. ``client``: client id, as the client gives it; ``host``: its address.

    ``principal``: ``User:alice``; "" for a client without authentication. ``request``: correlation id of the request,
    or the number that a command gives itself; None for neither.
    """

    client: str
    host: str
    principal: str = ""
    request: int | None = None

    @property
    def undoes(self) -> str | None:
        """The id of the act that the request undoes, or None."""
        found = self.client.removeprefix(UNDO_CLIENT)
        return found if found != self.client and is_act_id(found) else None

    @property
    def is_klog(self) -> bool:
        """Whether it is a klog command, by the client id."""
        return self.client == "klog" or self.undoes is not None

    @property
    def name(self) -> str:
        """``User:alice``, or ``CLIENT@HOST`` without authentication; ``klog@HOST`` for an undo."""
        client = "klog" if self.undoes else self.client
        return self.principal or (f"{client}@{self.host}" if self.host else client)


@dataclass(frozen=True, slots=True)
class Act:
    """``topic``, ``group``, ``schema``, ``broker``, ``path``, ``acl`` (a pattern), ``quota`` (an entity's path),
    ``user``: its subject. The states are JSON."""

    act_id: str
    time_ms: int
    kind: str
    actor: Actor
    before: Any = None
    after: Any = None
    undoes: str | None = None
    topic: str | None = None
    group: str | None = None
    schema: str | None = None
    broker: int | None = None
    path: str | None = None
    acl: str | None = None
    quota: str | None = None
    user: str | None = None

    def facts(self) -> dict[str, Any]:
        """All fields but the id, as in the node and the event."""
        return {
            "time": self.time_ms,
            "kind": self.kind,
            "client": self.actor.client,
            "host": self.actor.host,
            **({"principal": self.actor.principal} if self.actor.principal else {}),
            **({} if self.actor.request is None else {"request": self.actor.request}),
            **{key: found for name, key in _SUBJECTS.items() if (found := getattr(self, name)) is not None},
            "before": self.before,
            "after": self.after,
            "undoes": self.undoes,
        }

    def event(self) -> dict[str, Any]:
        """The fields of its event in ``klog.events``: short, since events are sent many at a time.

        ``left_out_bytes``: size of states too long for it; ``klog events ACT`` shows them.
        """
        facts = self.facts()
        if (size := len(json.dumps([self.before, self.after]))) > EVENT_STATE_BYTES_MAX:
            del facts["before"], facts["after"]
            facts["left_out_bytes"] = size
        return {"act": self.act_id, "what": facts.pop("kind"), **facts}

    @property
    def write(self) -> Create:
        """The operation for the transaction that makes the change; also its proof (`ZooKeeper.commit`)."""
        return Create(paths.act(self.act_id), entries.encode({"version": 1, **self.facts()}))


def new_act(
    kind: str, actor: Actor, *, before: Any = None, after: Any = None, clock: Clock = SYSTEM_CLOCK, **subject: Any
) -> Act:
    """A new act, to be written with the change; its subject by the name of its field in `Act`."""
    if len(json.dumps([before, after])) > STATE_BYTES_MAX:
        before = after = None
    now_ms = clock.now_ms()
    shown = actor._replace(client=actor.client[:CLIENT_CHARS_MAX], principal=actor.principal[:CLIENT_CHARS_MAX])
    return Act(new_id(now_ms), now_ms, kind, shown, before, after, actor.undoes, **subject)


def new_id(now_ms: int) -> str:
    """``mifz3k2a9x4q``."""
    return _time_text(now_ms) + "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_CHARS))


def _time_text(time_ms: int) -> str:
    text = ""
    while time_ms:
        time_ms, digit = divmod(time_ms, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text.rjust(_TIME_CHARS, "0")


def is_act_id(text: str) -> bool:
    """Whether a text can be an act's id."""
    return len(text) == _TIME_CHARS + _RANDOM_CHARS and all(one in _DIGITS for one in text)


def commit_act(zookeeper: ZooKeeper, act: Act, change: Sequence[Operation], folders: Sequence[str]) -> bool:
    """Write a change with its act. False after a lost race, or where a folder was missing, which is created now: the
    caller reads again."""
    try:
        zookeeper.commit([*change, act.write], [act.write])
    except (BadVersion, NodeExists):
        return False
    except NoNode:
        zookeeper.ensure_paths([*folders, paths.ACTS])
        return False
    return True


def list_ids(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[str]:
    """The ids of all acts, the oldest first."""
    return [one for one in zookeeper.find_children(paths.ACTS, watch) if is_act_id(one)]


def ids_since(zookeeper: ZooKeeper, time_ms: int) -> list[str]:
    """The ids of the acts from a time on, the oldest first."""
    begin = _time_text(max(0, time_ms))
    return [one for one in list_ids(zookeeper) if one >= begin]


def read_by_transaction(zookeeper: ZooKeeper, act_ids: Sequence[str]) -> list[tuple[int, Act]]:
    """These acts with the transactions that wrote them, in their order. Unreadable nodes are skipped."""
    found = []
    for act_id, node in _nodes(zookeeper, act_ids):
        try:
            found.append((node.stat.created_zxid, _decoded(act_id, node)))
        except ZooKeeperError as error:
            log.warning("an act is left out: %s", error.message)
    return sorted(found, key=lambda one: one[0])


def _nodes(zookeeper: ZooKeeper, act_ids: Sequence[str]) -> Iterator[tuple[str, ZNode]]:
    """The nodes of these acts, without those removed meanwhile."""
    for at in range(0, len(act_ids), READ_AT_ONCE):
        yield from zookeeper.find_many(act_ids[at : at + READ_AT_ONCE], paths.act).items()


def published(zookeeper: ZooKeeper) -> int:
    """The transaction of the last act published in ``klog.events``; 0 for none."""
    node = zookeeper.find(paths.ACTS)
    return 0 if node is None or not node.data else entries.JsonNode(paths.ACTS, node.data).integer("published")


def last_change(zookeeper: ZooKeeper) -> int:
    """The transaction of the last change of the list of acts; 0 for none."""
    stat = zookeeper.exists(paths.ACTS)
    return 0 if stat is None else stat.children_zxid


def mark_published(zookeeper: ZooKeeper, zxid: int, fence: Sequence[Operation]) -> None:
    """Record that acts up to this transaction are in ``klog.events``. Raises BadVersion once another controller is
    elected."""
    zookeeper.commit([*fence, SetData(paths.ACTS, entries.encode({"version": 1, "published": zxid}))])


def read(zookeeper: ZooKeeper, act_ids: Sequence[str]) -> list[Act]:
    """These acts, without those removed meanwhile. Raises ZooKeeperError for a node that is not an act."""
    return [_decoded(act_id, node) for act_id, node in _nodes(zookeeper, act_ids)]


def find(zookeeper: ZooKeeper, act_id: str) -> Act | None:
    """One act, or None."""
    return next(iter(read(zookeeper, [act_id])), None) if is_act_id(act_id) else None


def _decoded(act_id: str, node: ZNode) -> Act:
    path = paths.act(act_id)
    entry = entries.JsonNode(path, node.data)
    fields = entry.fields
    for name in (*_SUBJECTS.values(), "undoes"):
        if name != "id" and not isinstance(fields.get(name), str | None):
            raise ZooKeeperError(f"ZooKeeper node {path}: {name} is not a text")
    if not 0 <= entry.integer("time") <= TIME_MS_MAX:
        raise ZooKeeperError(f"ZooKeeper node {path}: time {entry.integer('time')} is not in the years 1970 to 9999")
    there = {name: key for name, key in _SUBJECTS.items() if key in fields}
    subject: dict[str, Any] = {name: entry.integer(key) if key == "id" else fields[key] for name, key in there.items()}
    return Act(
        act_id,
        entry.integer("time"),
        entry.text("kind"),
        Actor(
            entry.text("client"),
            entry.text("host"),
            entry.text("principal", ""),
            entry.integer("request") if "request" in fields else None,
        ),
        fields.get("before"),
        fields.get("after"),
        fields.get("undoes"),
        **subject,
    )


def forget_oldest(zookeeper: ZooKeeper, kept_max: int = KEPT_MAX, kept_bytes_max: int = KEPT_BYTES_MAX) -> int:
    """Remove old acts beyond these limits, `FORGOTTEN_AT_ONCE` at most; returns how many."""
    gone = 0
    try:
        for act_id in _to_forget(_sizes(zookeeper), kept_max, kept_bytes_max):
            try:
                zookeeper.commit([Delete(paths.act(act_id))])
            except NoNode:
                continue
            gone += 1
    except KlogError as error:  # the next acts remove more
        log.debug("old acts are kept for now: %s", error.message)
    return gone


def _sizes(zookeeper: ZooKeeper) -> dict[str, tuple[str, int]]:
    """Act -> its host ("" if unreadable) and its bytes; the oldest first."""
    sizes: dict[str, tuple[str, int]] = {}
    for act_id, node in _nodes(zookeeper, list_ids(zookeeper)):
        try:
            host = _decoded(act_id, node).actor.host
        except ZooKeeperError:
            host = ""
        sizes[act_id] = host, len(node.data)
    return sizes


def _to_forget(sizes: Mapping[str, tuple[str, int]], kept_max: int, kept_bytes_max: int) -> Iterator[str]:
    of_host: defaultdict[str, deque[str]] = defaultdict(deque)
    bytes_of_host: Counter[str] = Counter()
    for act_id, (host, size) in sizes.items():
        of_host[host].append(act_id)
        bytes_of_host[host] += size
    count, total = len(sizes), sum(bytes_of_host.values())
    for _ in range(FORGOTTEN_AT_ONCE):
        if count > kept_max:
            host = max(of_host, key=lambda host: len(of_host[host]))
        elif total > kept_bytes_max:
            host = max(of_host, key=lambda host: bytes_of_host[host])
        else:
            return
        act_id = of_host[host].popleft()
        size = sizes[act_id][1]
        count, total = count - 1, total - size
        bytes_of_host[host] -= size
        yield act_id
