"""Acts taken back: `plan_undo` compares what there is with what the act left; what it returns restores what was before.

What is compared and shown are texts by name: settings, offsets by partition, leaders.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from klog.admin.acls import add_acls, filter_of, remove_acls
from klog.admin.acts import DELETION, REASSIGNMENT, SETTINGS, SHOWN_MAX, ActRow, changed, here, recent_acts
from klog.admin.quotas import alter_quotas
from klog.admin.settings import alter_topic_settings
from klog.admin.trash import plan_restore, restore_topic
from klog.admin.znodes import ZnodeChange, data_of
from klog.admin.znodes import write as write_znode
from klog.client.cluster import Cluster
from klog.client.reassignments import alter_reassignments, elect_replicas
from klog.coordination import (
    acls,
    acts,
    committed,
    offset_acts,
    offset_changes,
    partition_states,
    quotas,
    topics,
)
from klog.coordination.acts import ELECTION_ACT, RECORDS_ACT, UNCLEAN_ACT, ZNODE_CREATE, ZNODE_DELETE, ZNODE_KINDS, Act
from klog.coordination.schemas import (
    DEFAULT_LEVEL,
    DELETE_ACT,
    LEVEL,
    LEVEL_ACT,
    REGISTER_ACT,
    SchemaRegistry,
    Settings,
    Subject,
)
from klog.coordination.scram_credentials import USER_ACT
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, Refused, ZooKeeperError
from klog.names import TopicPartition
from klog.schemas.compatibility import Level
from klog.security.permissions import Binding, Resource
from klog.security.quotas import Entity, QuotaKey, text_of

CANNOT_BE_UNDONE: Final[Mapping[str, str]] = {
    "topic-create": "`klog topic delete` removes the topic and its messages",
    "topic-purge": "its messages are gone",
    "topic-restore": "`klog topic delete` deletes the topic again",
    "partitions-add": "partitions cannot be removed: keys would change their partition once more",
    UNCLEAN_ACT: "the new leader's log is the partition's log now; `klog lost list` shows what was cut off elsewhere",
    RECORDS_ACT: "its messages are gone",
    "broker-stop": "`klog broker start` starts it on its host",
    "broker-restart": "it serves again",
    REGISTER_ACT: "messages may name the schema; `klog schema delete` deletes the version",
    USER_ACT: "passwords are not kept; `klog user passwd` sets one",
    DELETE_ACT: "register the schema again: it gets its old id",
}
"""Why the other kinds of act are not taken back."""

K = TypeVar("K")
V = TypeVar("V")


def no_way_back(kind: str) -> str:
    """Why `klog undo` does not take an act of one of these kinds back, for the question before it."""
    return f"`klog undo` cannot take it back: {CANNOT_BE_UNDONE[kind]}"


def can_be_undone(act: ActRow) -> bool:
    """Whether there is a way back, and it was not taken yet."""
    return act.kind not in CANNOT_BE_UNDONE and act.undone_by is None


def open_acts(zookeeper: ZooKeeper, most: int = 1_000) -> list[ActRow]:
    """Those of the last ``most`` acts that can be taken back, the newest first. Blocks."""
    return [one for one in recent_acts(zookeeper, 0, most)[0] if can_be_undone(one)]


def what_was_done(act: ActRow) -> str:
    """In one line, as completion shows it."""
    return f"{act.kind} of {act.subject} by {act.principal}: {act.before} > {act.after}"


def undo_client(act_id: str) -> str:
    """The client id under which an act is taken back."""
    return f"{acts.UNDO_CLIENT}{act_id}"


@dataclass(frozen=True, slots=True)
class UndoRow:
    """What an undo changes: a setting, or the offset of a partition. ``now`` and ``then``: None where there is none."""

    subject: str
    setting: str
    now: str | None
    then: str | None


@dataclass(frozen=True, slots=True)
class Undo:
    """What takes an act back: a row for each ``what`` that it changes, and what carries it out.

    The client id of the cluster must be `undo_client` of the act, so that the new act names the old one.
    ``carry_out`` raises NonEmptyGroup if the act is about a group that has members.
    """

    what: str
    rows: Sequence[UndoRow]
    carry_out: Callable[[Cluster, ZooKeeper], Awaitable[object]]


def plan_undo(zookeeper: ZooKeeper, act: Act) -> Undo:
    """What takes the act back. Refused where that is not possible, or where the state has moved on since: with the
    difference. Blocks."""
    plan, name = _PLANS.get(act.kind, (None, None))
    about = None if name is None else getattr(act, name)
    if plan is None or about is None:
        raise _cannot(act, CANNOT_BE_UNDONE.get(act.kind, "this version of klog does not know how"), f" ({act.kind})")
    return plan(zookeeper, act, about)


def _deletion(zookeeper: ZooKeeper, act: Act, topic: str) -> Undo:
    found = topics.find_deleted(zookeeper, topic)
    if found is None or found[1].act != act.act_id:
        refused = _cannot(act, f"topic {topic} is restored, or purged, or klog 0.2 deleted it and can restore it")
        refused.hint = "`klog topic list --deleted` lists what can be restored; the act has the assignment and settings"
        raise refused

    async def restore(cluster: Cluster, zookeeper: ZooKeeper) -> None:
        await restore_topic(cluster, await plan_restore(cluster, zookeeper, topic))

    return Undo("topic", [UndoRow(f"topic {topic}", "exists", "false", "true")], restore)


def _settings(zookeeper: ZooKeeper, act: Act, topic: str) -> Undo:
    before, after = (_state(act, state, "settings", str, _text) for state in (act.before, act.after))
    _check_topic(zookeeper, act, topic)
    names = changed(before, after)
    now = topics.configs(zookeeper, [topic])[topic].settings
    hint = f"`klog events topic {topic} --kind act` shows who changed it"
    rows = _rows(act, f"topic {topic}", names, now, before, after, hint=hint)

    async def alter(cluster: Cluster, _: ZooKeeper) -> None:
        given = {name: value for name in names if (value := before.get(name)) is not None}
        await alter_topic_settings(cluster, topic, given, [name for name in names if name not in given])

    return Undo("setting", rows, alter)


def _offsets(zookeeper: ZooKeeper, act: Act, group: str) -> Undo:
    before, after = offset_acts.decoded(act, act.before), offset_acts.decoded(act, act.after)
    for topic in sorted({name.topic for name in after}):
        _check_topic(zookeeper, act, topic)

    def rows(now: offset_acts.State) -> list[UndoRow]:
        offsets = ({name: one and one.offset for name, one in state.items()} for state in (now, before, after))
        lag = f"`klog lag {shlex.quote(group)}` shows where it is; `klog group rewind` sets its offsets"
        return _rows(act, f"group {group}", list(after), *offsets, said="{} is at", hint=lag)

    def check_not_moved(now: offset_acts.State) -> bool:
        rows(now)
        return True

    async def write(_: Cluster, zookeeper: ZooKeeper) -> None:
        await asyncio.to_thread(
            offset_changes.write,
            zookeeper,
            group,
            before,
            hint="stop them first: they would commit over it",
            check_before=check_not_moved,
            actor=here(zookeeper, undo_client(act.act_id)),
        )

    return Undo("offset", rows(committed.read(zookeeper, group, after)), write)


def _reassignment(zookeeper: ZooKeeper, act: Act, name: str) -> Undo:
    """Another reassignment, to the replicas before. It stops one that is not over."""
    before, after = (
        _state(act, state, "assignment", lambda number: TopicPartition(name, int(number)), lambda ids: [*map(int, ids)])
        for state in (act.before, act.after)
    )
    topic = _check_topic(zookeeper, act, name)
    moved = sorted(one for one in after if one in before and before[one] != after[one])
    now = {
        one: [broker for broker in topic.partitions.get(number, ()) if broker not in topic.removing.get(number, ())]
        for one in moved
        for number in (one.partition,)
    }
    hint = f"`klog events topic {name} --kind act` shows who changed it"
    rows = _rows(act, f"topic {name}", moved, now, before, after, hint=hint)

    async def reassign(cluster: Cluster, _: ZooKeeper) -> None:
        _check_outcomes(act, await alter_reassignments(cluster, {one: before[one] for one in moved}))

    return Undo("partition", rows, reassign)


def _election(zookeeper: ZooKeeper, act: Act, topic: str) -> Undo:
    """Other elections, of the leaders before."""
    before, after = (
        _state(act, state, "leaders", lambda number: TopicPartition(topic, int(number)), int)
        for state in (act.before, act.after)
    )
    names = sorted(name for name in before.keys() & after.keys() if before[name] >= 0)
    _check_topic(zookeeper, act, topic)
    states = partition_states.read_many(zookeeper, names)
    now = {name: -1 if (state := states.get(name)) is None else state.leader for name in names}
    hint = f"`klog events topic {topic} --kind leader-elected` shows its elections"
    said = "the leader of {} is"
    rows = _rows(act, f"topic {topic}", names, now, before, after, said=said, hint=hint)

    async def elect(cluster: Cluster, _: ZooKeeper) -> None:
        _check_outcomes(act, await elect_replicas(cluster, {name: before[name] for name in names}))

    return Undo("leader", rows, elect)


def _acls(zookeeper: ZooKeeper, act: Act, name: str) -> Undo:
    try:
        (pattern, before), (_, after) = acls.read_act_state(act.before), acls.read_act_state(act.after)
    except ZooKeeperError:
        raise _cannot(act, "its ACLs were too many to be kept") from None
    came, went = sorted(after - before), sorted(before - after)
    there = acls.read(zookeeper, [pattern]).acls.get(pattern, frozenset())
    states = ({one: "present" for one in (*came, *went) if one in state} for state in (there, before, after))
    hint = f"`klog acl list {shlex.quote(str(Resource(pattern.kind, pattern.name)))}` shows its ACLs"
    found = _rows(act, str(pattern), [*came, *went], *states, said="the ACL {} is", hint=hint)
    rows = [replace(one, subject=f"acl {pattern}") for one in found]

    async def change(cluster: Cluster, _: ZooKeeper) -> None:
        if came:
            await remove_acls(cluster, [filter_of(Binding(pattern, one)) for one in came])
        if went:
            await add_acls(cluster, [Binding(pattern, one) for one in went])

    return Undo("ACL", rows, change)


def _quotas(zookeeper: ZooKeeper, act: Act, path: str) -> Undo:
    entity = Entity.of_path(path)
    try:
        before, after = quotas.read_act_state(act.before), quotas.read_act_state(act.after)
    except ZooKeeperError:
        entity = None
    if entity is None:
        raise _cannot(act, "its quotas cannot be read")
    keys = [key for key in QuotaKey if before.get(key) != after.get(key)]
    now = quotas.read(zookeeper, [entity]).quotas[entity]
    texts = ({key: text_of(key, value) for key, value in values.items()} for values in (now, before, after))
    rows = _rows(act, f"quota {entity}", keys, *texts, hint="`klog quota list` shows the quotas")

    async def alter(cluster: Cluster, _: ZooKeeper) -> None:
        await alter_quotas(cluster, entity, {key: before.get(key) for key in keys})

    return Undo("quota", rows, alter)


def _znode(zookeeper: ZooKeeper, act: Act, path: str) -> Undo:
    before, after = _data(act, act.before), _data(act, act.after)
    if act.kind != ZNODE_CREATE and before is None:
        raise _cannot(act, "the node's data was too long to be kept")
    if isinstance(act.before, dict) and act.before.get("session") is not None and act.kind == ZNODE_DELETE:
        raise _cannot(act, f"{path} belonged to session {act.before['session']}")
    now = zookeeper.find(path)
    version = act.after.get("version") if isinstance(act.after, dict) else None
    if (None if now is None else now.stat.version) != version or (now is not None and now.data != after):
        is_now = "is not there" if now is None else f"is at version {now.stat.version}"
        left = "removed it" if version is None else f"left it at version {version}"
        raise Refused(
            f"znode {path} has changed since act {act.act_id}: it {is_now}, and the act {left}",
            hint=f"`klog zk get {shlex.quote(path)}` shows it",
        )
    what = "create" if now is None else "set" if before is not None else "delete"
    change = ZnodeChange(path, what, version, None if now is None else now.data, before)

    async def write(_: Cluster, zookeeper: ZooKeeper) -> None:
        await asyncio.to_thread(write_znode, zookeeper, change, here(zookeeper, undo_client(act.act_id)))

    shown, then = (None if one is None else one.decode("utf-8", "backslashreplace") for one in (change.before, before))
    return Undo("znode", [UndoRow(f"znode {path}", "data", shown, then)], write)


def _data(act: Act, state: object) -> bytes | None:
    if state is None:
        return None
    try:
        return data_of(cast("dict[str, Any]", state))
    except (KeyError, TypeError, ValueError) as error:
        raise _cannot(act, f"its data cannot be read ({error})") from None


def _level(zookeeper: ZooKeeper, act: Act, name: str) -> Undo:
    """Of a subject; of the registry where ``name`` is empty."""
    before, after = (_level_in(act, state) for state in (act.before, act.after))
    subject = f"schema {name}" if name else "schemas"

    def rows(now: str | None) -> list[UndoRow]:
        levels = ({LEVEL: one} for one in (now, before, after))
        return _rows(act, subject, [LEVEL], *levels, hint="`klog schema level` sets it")

    def decide(settings: Settings, there: Subject) -> Subject:
        rows(there.level)
        return replace(there, level=before)

    def write(zookeeper: ZooKeeper) -> None:
        registry, actor = SchemaRegistry(zookeeper), here(zookeeper, undo_client(act.act_id))
        if name:
            registry.change(name, decide, actor)
        else:
            registry.set_level(before or DEFAULT_LEVEL, actor, rows)

    registry = SchemaRegistry(zookeeper)
    found = registry.subjects([name]) if name else []
    now = registry.settings().level if not name else found[0].level if found else None
    return Undo("level", rows(now), lambda _, zookeeper: asyncio.to_thread(write, zookeeper))


def _level_in(act: Act, state: object) -> str | None:
    level = state.get(LEVEL) if isinstance(state, dict) else 0
    if level is None or level in list(Level):
        return level
    raise _cannot(act, "its compatibility level cannot be read")


_PLANS: Final[Mapping[str, tuple[Callable[[ZooKeeper, Act, str], Undo], str]]] = {
    SETTINGS: (_settings, "topic"),
    DELETION: (_deletion, "topic"),
    REASSIGNMENT: (_reassignment, "topic"),
    ELECTION_ACT: (_election, "topic"),
    **dict.fromkeys(offset_acts.KINDS, (_offsets, "group")),
    **dict.fromkeys(ZNODE_KINDS, (_znode, "path")),
    acls.ACL_ACT: (_acls, "acl"),
    quotas.QUOTA_ACT: (_quotas, "quota"),
    LEVEL_ACT: (_level, "schema"),
}
"""By an act's kind: what plans its undo, and which of the act's names it is about."""


# --- Parts ------------------------------------------------------------------------------------------------------------


def _cannot(act: Act, why: str, kind: str = "") -> Refused:
    return Refused(f"act {act.act_id}{kind} cannot be taken back: {why}")


def _check_topic(zookeeper: ZooKeeper, act: Act, name: str) -> topics.Topic:
    found = topics.find(zookeeper, name)
    if found is None:
        raise _cannot(act, f"topic {name} does not exist")
    return found


def _state(act: Act, state: object, what: str, name: Callable[[str], K], value: Callable[[Any], V]) -> dict[K, V]:
    """One of an act's states. Anyone may have written it."""
    if not isinstance(state, dict):
        raise _cannot(act, f"its {what} were too long to be kept")
    try:
        return {name(one): value(found) for one, found in state.items()}
    except (TypeError, ValueError) as error:
        raise _cannot(act, f"its {what} cannot be read ({error})") from None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _rows(
    act: Act,
    subject: str,
    names: Sequence[K],
    now: Mapping[K, object],
    before: Mapping[K, object],
    after: Mapping[K, object],
    *,
    said: str = "{} is",
    hint: str,
) -> list[UndoRow]:
    """What an undo does with these values, as texts. Refused, with the first that differ, where they are not as the
    act left them. None, and a name that is not there: there is no such value."""
    found, then, left = ([_text(state.get(name)) for name in names] for state in (now, before, after))
    moved = [
        f"{said.format(name)} {is_now or 'not set'}, and the act left it {was or 'not set'}"
        for name, is_now, was in zip(names, found, left, strict=True)
        if is_now != was
    ]
    if moved:
        more = f"; and {len(moved) - SHOWN_MAX} more" if len(moved) > SHOWN_MAX else ""
        listed = "; ".join(moved[:SHOWN_MAX])
        raise Refused(f"{subject} has changed since act {act.act_id}: {listed}{more}", hint=hint)
    return [UndoRow(subject, str(name), *texts) for name, *texts in zip(names, found, then, strict=True)]


def _check_outcomes(act: Act, outcomes: Mapping[TopicPartition, KlogError | None]) -> None:
    for name, error in outcomes.items():
        if error is not None:
            raise Refused(f"act {act.act_id} is not taken back as a whole: {name}: {error.message}")
