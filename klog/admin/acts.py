"""Acts: who changed what of the cluster.

`klog.coordination.acts` has what is written; `klog.admin.undo` takes acts back.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from klog.coordination import acls, acts, offset_acts, quotas
from klog.coordination.acls import ACL_ACT
from klog.coordination.acts import ELECTION_ACT, RECORDS_ACT, UNCLEAN_ACT, Act, Actor
from klog.coordination.quotas import QUOTA_ACT
from klog.coordination.schemas import DELETE_ACT, LEVEL_ACT, REGISTER_ACT
from klog.coordination.scram_credentials import USER_ACT
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NoSuchThing, ZooKeeperError
from klog.names import first_few
from klog.net.conversation import next_number

SETTINGS: Final = "topic-settings"
REASSIGNMENT: Final = "reassignment"
DELETION: Final = "topic-delete"
RESTORE: Final = "topic-restore"
"""A restore names the deletion that it takes back."""
STATES: Final = offset_acts.KINDS | {
    *(SETTINGS, REASSIGNMENT, REGISTER_ACT, DELETE_ACT, LEVEL_ACT, ELECTION_ACT, UNCLEAN_ACT, RECORDS_ACT, QUOTA_ACT),
    USER_ACT,
}
"""Kinds whose states are objects from names to values."""
MADE_MAX: Final = 200
"""Acts among which a command looks for its own."""
SHOWN_MAX: Final = 20
"""Values shown in a row; more are counted."""


@dataclass(frozen=True, slots=True)
class ActRow:
    """One act. ``before`` and ``after`` show what differs."""

    act: str
    time: datetime
    principal: str = field(metadata={"rank": 1})
    client: str = field(metadata={"rank": 3})
    kind: str
    subject: str
    before: str
    after: str
    undone_by: str | None = field(metadata={"rank": 2})
    undoes: str | None = field(default=None, metadata={"wide": True})
    request: int | None = field(default=None, metadata={"wide": True})


def list_acts(zookeeper: ZooKeeper, *, since_ms: int = 0) -> list[ActRow]:
    """The acts that ZooKeeper has, the oldest first. Blocks."""
    found = sorted(_read_all(zookeeper), key=lambda act: act.time_ms)
    undone = _undone(found)
    return [row(act, undone.get(act.act_id)) for act in found if act.time_ms >= since_ms]


def recent_acts(zookeeper: ZooKeeper, since_ms: int, most: int) -> tuple[list[ActRow], int]:
    """The last acts from a time on, so many at most, the newest first; and how many there are in all. Blocks.

    What cannot be read is left out, and what the cluster has done for itself.
    """
    ids = acts.ids_since(zookeeper, since_ms)
    read = [act for _, act in acts.read_by_transaction(zookeeper, ids[-most:])]
    undone = _undone(read)
    found = [act for act in reversed(read) if act.actor.host != acts.OF_CLUSTER]
    return [row(act, undone.get(act.act_id)) for act in found], len(ids) - len(read) + len(found)


def show_act(zookeeper: ZooKeeper, act_id: str) -> tuple[ActRow, Act]:
    """One act, whole; NoSuchThing. Blocks."""
    act = acts.find(zookeeper, act_id)
    if act is None:
        raise NoSuchThing(
            f"ZooKeeper has no act {act_id!r}",
            hint="`klog undo` lists what can be undone; `klog events --kind act --since start` has older acts",
        )
    return row(act, _undone(_read_all(zookeeper)).get(act_id), None), act


def _read_all(zookeeper: ZooKeeper) -> list[Act]:
    return acts.read(zookeeper, acts.list_ids(zookeeper))


def _undone(found: Sequence[Act]) -> dict[str, str]:
    """Act -> the one that took it back. Any client can claim that: it must have brought back what was before."""
    by_id = {act.act_id: act for act in found}
    return {
        act.undoes: act.act_id
        for act in found
        if act.undoes is not None and (first := by_id.get(act.undoes)) is not None and _takes_back(act, first)
    }


def _takes_back(act: Act, first: Act) -> bool:
    if (first.kind, act.kind) == (DELETION, RESTORE):
        return isinstance(act.before, dict) and act.before.get("deleted_by") == first.act_id
    if first.acl is not None:
        return act.acl == first.acl and act.after == first.before
    if first.path is not None:
        return act.path == first.path and _data(act.after) == _data(first.before)
    if (
        (act.topic, act.group, act.schema, act.quota) != (first.topic, first.group, first.schema, first.quota)
        or first.kind not in STATES
        or act.kind not in STATES
    ):
        return False
    if not all(isinstance(state, dict) for state in (first.before, first.after, act.after)):
        return False
    return all(act.after.get(name) == first.before.get(name) for name in changed(first.before, first.after))


def _data(state: Any) -> Any:
    """What a znode holds, without its version; None if it does not exist."""
    return state and {name: value for name, value in state.items() if name in ("data", "base64")}


def row(act: Act, undone_by: str | None, shown_max: int | None = SHOWN_MAX) -> ActRow:
    """An act as it is shown, with so many values of each state; None: all."""
    before, after = _difference(act, shown_max)
    return ActRow(
        act.act_id,
        datetime.fromtimestamp(act.time_ms / 1000, UTC),
        act.actor.name,
        act.actor.client,
        act.kind,
        _subject(act),
        before,
        after,
        undone_by,
        act.undoes,
        act.actor.request,
    )


def _subject(act: Act) -> str:
    if act.schema is not None:
        return f"schema {act.schema}" if act.schema else "schemas"
    for what, name in (
        ("topic", act.topic),
        ("group", act.group),
        ("broker", act.broker),
        ("znode", act.path),
        ("acl", act.acl),
        ("user", act.user),
        ("quota", None if act.quota is None else quotas.subject_of(act.quota)),
    ):
        if name is not None:
            return f"{what} {name}"
    return "cluster"


def _difference(act: Act, shown_max: int | None) -> tuple[str, str]:
    before, after = act.before, act.after
    if act.kind == ACL_ACT:  # those that went, and those that came
        with contextlib.suppress(ZooKeeperError):
            (_, gone), (_, come) = acls.read_act_state(before), acls.read_act_state(after)
            went, came = (", ".join(map(str, sorted(those))) or "-" for those in (gone - come, come - gone))
            return went, came
    if act.kind in STATES and isinstance(before, dict) and isinstance(after, dict):
        names = changed(before, after)
        return _state_text(before, names, shown_max), _state_text(after, names, shown_max)
    return _text(before), _text(after)


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names whose values differ."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _state_text(state: Mapping[str, Any], names: Sequence[str], shown_max: int | None) -> str:
    values = {name: value for name in names if (value := state.get(name)) is not None}
    texts = [f"{name}={one.get('offset') if isinstance(one, dict) else one}" for name, one in values.items()]
    return first_few(texts, len(texts) if shown_max is None else shown_max, " ") or "-"


def _text(state: Any) -> str:
    if state is None:
        return "-"
    if not isinstance(state, dict):
        return json.dumps(state)
    shown = {name: value for name, value in state.items() if name != "assignment" and value != {}}
    return " ".join(
        f"{name}={value if isinstance(value, str | int) else json.dumps(value)}" for name, value in shown.items()
    )


def here(zookeeper: ZooKeeper, client: str = "klog") -> Actor:
    """Who acts in this process: a command that writes to ZooKeeper itself, by the name that brokers give it."""
    return Actor(client, own_address(zookeeper), request=next_number())


def own_address(zookeeper: ZooKeeper) -> str:
    """This machine's address on the way to ZooKeeper, by which brokers know it too; its name where there is no way.

    Nothing is sent: the kernel chooses the address when a datagram's socket is connected.
    """
    for address in zookeeper.address.servers:
        with contextlib.suppress(OSError):
            family, *_, server = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
                datagrams.connect(server)
                return str(datagrams.getsockname()[0])
    return socket.gethostname()


def made_here(zookeeper: ZooKeeper, numbers: range) -> list[ActRow]:
    """The last acts that this process has made by requests with these numbers, the oldest first. Blocks."""
    found = acts.read(zookeeper, acts.list_ids(zookeeper)[-MADE_MAX:])
    return [row(one, None) for one in found if one.actor.client.startswith("klog") and one.actor.request in numbers]
