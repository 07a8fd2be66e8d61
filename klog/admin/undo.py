"""Acts taken back: `plan_undo` compares what there is with what the act left, `undo` restores what was before it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from klog.admin.acts import REASSIGNMENT, SETTINGS, SHOWN_MAX, ActRow, changed, here, recent_acts
from klog.admin.znodes import ZnodeChange, data_of
from klog.admin.znodes import write as write_znode
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
from klog.coordination.committed import CommittedOffset
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
from klog.errors import KlogError, Refused, ZooKeeperError
from klog.names import TopicPartition
from klog.schemas.compatibility import Level
from klog.security.permissions import Binding, Resource
from klog.security.quotas import Entity, QuotaKey, Values, text_of

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

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


@dataclass(frozen=True, slots=True)
class UndoRow:
    """What an undo changes: a setting, or the offset of a partition. ``now`` and ``then``: None where there is none."""

    subject: str
    setting: str
    now: str | None
    then: str | None


@dataclass(frozen=True, slots=True)
class SettingsUndo:
    """What takes an act back; ``change`` has the value of each setting, None for one to remove."""

    act: Act
    topic: str
    rows: tuple[UndoRow, ...]
    change: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class OffsetsUndo:
    """What takes an act on committed offsets back."""

    act: Act
    group: str
    rows: tuple[UndoRow, ...]
    change: Mapping[TopicPartition, CommittedOffset | None]


@dataclass(frozen=True, slots=True)
class DeletionUndo:
    """What takes the deletion of a topic back."""

    act: Act
    topic: str
    rows: tuple[UndoRow, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentUndo:
    """What takes a reassignment back: another one, to the replicas before. It stops one that is not over."""

    act: Act
    topic: str
    rows: tuple[UndoRow, ...]
    change: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SchemaLevelUndo:
    """What takes a change of a compatibility level back; ``subject`` "" is the registry."""

    act: Act
    subject: str
    rows: tuple[UndoRow, ...]
    now: str | None
    then: str | None


@dataclass(frozen=True, slots=True)
class AclUndo:
    """What takes a change of ACLs back: those to remove, and those to add."""

    act: Act
    rows: tuple[UndoRow, ...]
    remove: tuple[Binding, ...]
    add: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class QuotaUndo:
    """What takes a change of quotas back; ``change`` has the value of each, None for one to remove."""

    act: Act
    entity: Entity
    rows: tuple[UndoRow, ...]
    change: Mapping[QuotaKey, float | None]


@dataclass(frozen=True, slots=True)
class ZnodeUndo:
    """What takes a change of a znode back: another one."""

    act: Act
    rows: tuple[UndoRow, ...]
    change: ZnodeChange


@dataclass(frozen=True, slots=True)
class ElectionUndo:
    """What takes elections back: others, of the leaders before."""

    act: Act
    topic: str
    rows: tuple[UndoRow, ...]
    change: Mapping[TopicPartition, int]


Undo = (
    AclUndo
    | DeletionUndo
    | ElectionUndo
    | OffsetsUndo
    | QuotaUndo
    | ReassignmentUndo
    | SchemaLevelUndo
    | SettingsUndo
    | ZnodeUndo
)


def plan_undo(zookeeper: ZooKeeper, act: Act) -> Undo:
    """What takes the act back. Refused where that is not possible, or where the state has moved on since: with the
    difference. Blocks."""
    if act.kind == SETTINGS:
        return _plan_settings(zookeeper, act)
    if act.kind in offset_acts.KINDS and act.group is not None:
        return _plan_offsets(zookeeper, act, act.group)
    if act.kind == REASSIGNMENT and act.topic is not None:
        return _plan_reassignment(zookeeper, act, act.topic)
    if act.kind == ELECTION_ACT and act.topic is not None:
        return _plan_election(zookeeper, act, act.topic)
    if act.kind == acls.ACL_ACT:
        return _plan_acls(zookeeper, act)
    if act.kind == quotas.QUOTA_ACT and act.quota is not None:
        return _plan_quotas(zookeeper, act, act.quota)
    if act.kind in ZNODE_KINDS and act.path is not None:
        return _plan_znode(zookeeper, act, act.path)
    if act.kind == LEVEL_ACT and act.schema is not None:
        return _plan_level(zookeeper, act, act.schema)
    if act.kind == "topic-delete" and act.topic is not None:
        return _plan_deletion(zookeeper, act, act.topic)
    why = CANNOT_BE_UNDONE.get(act.kind, "this version of klog does not know how")
    raise Refused(f"act {act.act_id} ({act.kind}) cannot be taken back: {why}")


def _plan_deletion(zookeeper: ZooKeeper, act: Act, name: str) -> DeletionUndo:
    found = topics.find_deleted(zookeeper, name)
    if found is None or found[1].act != act.act_id:
        raise Refused(
            f"act {act.act_id} cannot be taken back: topic {name} is restored, or purged",
            hint="`klog topic list --deleted` lists what can be restored; the act has the assignment and settings",
        )
    rows = (UndoRow(f"topic {name}", "exists", "false", "true"),)
    return DeletionUndo(act, name, rows)


def _plan_settings(zookeeper: ZooKeeper, act: Act) -> SettingsUndo:
    if not isinstance(act.before, dict) or not isinstance(act.after, dict) or act.topic is None:
        raise Refused(f"act {act.act_id} cannot be taken back: its settings were too long to be kept")
    if topics.find(zookeeper, act.topic) is None:
        raise Refused(f"act {act.act_id} cannot be taken back: topic {act.topic} does not exist")
    now = topics.configs(zookeeper, [act.topic])[act.topic].settings
    moved = [name for name in changed(act.before, act.after) if now.get(name) != act.after.get(name)]
    _refuse(
        f"topic {act.topic} has",
        act,
        [
            f"{name} is {now.get(name) or 'not set'}, and the act left it {act.after.get(name) or 'not set'}"
            for name in moved
        ],
        hint=f"`klog events topic {act.topic} --kind act` shows who changed it",
    )
    change = {name: act.before.get(name) for name in changed(act.before, act.after)}
    rows = tuple(UndoRow(f"topic {act.topic}", name, now.get(name), then) for name, then in change.items())
    return SettingsUndo(act, act.topic, rows, change)


def _plan_offsets(zookeeper: ZooKeeper, act: Act, group: str) -> OffsetsUndo:
    before, after = offset_acts.decoded(act, act.before), offset_acts.decoded(act, act.after)
    for topic in sorted({name.topic for name in after}):
        if topics.find(zookeeper, topic) is None:
            raise Refused(f"act {act.act_id} cannot be taken back: topic {topic} does not exist")
    now = committed.read(zookeeper, group, after)
    _refuse_moved(act, {name: now.get(name) for name in after})
    rows = tuple(
        UndoRow(f"group {group}", str(name), _shown(now.get(name)), _shown(then)) for name, then in before.items()
    )
    return OffsetsUndo(act, group, rows, before)


def _plan_reassignment(zookeeper: ZooKeeper, act: Act, name: str) -> ReassignmentUndo:
    before, after = _replicas(act, act.before), _replicas(act, act.after)
    topic = topics.find(zookeeper, name)
    if topic is None:
        raise Refused(f"act {act.act_id} cannot be taken back: topic {name} does not exist")
    numbers = sorted(number for number in after if number in before and before[number] != after[number])
    now = {
        number: tuple(one for one in topic.partitions.get(number, ()) if one not in topic.removing.get(number, ()))
        for number in numbers
    }
    moved = [number for number in numbers if now[number] != after[number]]
    _refuse(
        f"topic {name} has",
        act,
        [
            f"partition {number} is assigned to {list(now[number])}, and the act left it {list(after[number])}"
            for number in moved
        ],
        hint=f"`klog events topic {name} --kind act` shows who changed it",
    )
    rows = tuple(
        UndoRow(f"topic {name}", f"{name}-{number}", str(list(now[number])), str(list(before[number])))
        for number in numbers
    )
    return ReassignmentUndo(act, name, rows, {number: before[number] for number in numbers})


def _plan_election(zookeeper: ZooKeeper, act: Act, topic: str) -> ElectionUndo:
    before, after = _leaders(act, topic, act.before), _leaders(act, topic, act.after)
    names = sorted(name for name in before.keys() & after.keys() if before[name] >= 0)
    if topics.find(zookeeper, topic) is None:
        raise Refused(f"act {act.act_id} cannot be taken back: topic {topic} does not exist")
    states = partition_states.read_many(zookeeper, names)
    leaders = {name: -1 if (state := states.get(name)) is None else state.leader for name in names}
    moved = [name for name in names if leaders[name] != after[name]]
    _refuse(
        f"topic {topic} has",
        act,
        [f"the leader of {name} is {leaders[name]}, and the act left it {after[name]}" for name in moved],
        hint=f"`klog events --topic {topic} --kind leader-elected` shows its elections",
    )
    rows = tuple(UndoRow(f"topic {topic}", str(name), str(after[name]), str(before[name])) for name in names)
    return ElectionUndo(act, topic, rows, {name: before[name] for name in names})


def _plan_acls(zookeeper: ZooKeeper, act: Act) -> AclUndo:
    try:
        (pattern, before), (_, after) = acls.read_act_state(act.before), acls.read_act_state(act.after)
    except ZooKeeperError:
        raise Refused(f"act {act.act_id} cannot be taken back: its ACLs were too many to be kept") from None
    now = acls.read(zookeeper, [pattern]).acls.get(pattern, frozenset())
    came, went = after - before, before - after
    _refuse(
        f"{pattern} has",
        act,
        [f"the ACL {one} is gone" for one in sorted(came - now)]
        + [f"the ACL {one} is there again" for one in sorted(went & now)],
        hint=f"`klog acl list {shlex.quote(str(Resource(pattern.kind, pattern.name)))}` shows its ACLs",
    )
    rows = [UndoRow(f"acl {pattern}", str(one), "present", None) for one in sorted(came)]
    rows += [UndoRow(f"acl {pattern}", str(one), None, "present") for one in sorted(went)]
    remove, add = (tuple(Binding(pattern, one) for one in sorted(those)) for those in (came, went))
    return AclUndo(act, tuple(rows), remove, add)


def _plan_quotas(zookeeper: ZooKeeper, act: Act, path: str) -> QuotaUndo:
    entity = Entity.of_path(path)
    try:
        before, after = quotas.read_act_state(act.before), quotas.read_act_state(act.after)
    except ZooKeeperError:
        entity = None
    if entity is None:
        raise Refused(f"act {act.act_id} cannot be taken back: its quotas cannot be read")
    now = quotas.read(zookeeper, [entity]).quotas[entity]
    keys = [key for key in QuotaKey if before.get(key) != after.get(key)]
    _refuse(
        f"{entity} has",
        act,
        [
            f"{key} is {_quota(key, now) or 'not set'}, and the act left it {_quota(key, after) or 'not set'}"
            for key in keys
            if now.get(key) != after.get(key)
        ],
        hint="`klog quota list` shows the quotas",
    )
    rows = tuple(UndoRow(f"quota {entity}", str(key), _quota(key, now), _quota(key, before)) for key in keys)
    return QuotaUndo(act, entity, rows, {key: before.get(key) for key in keys})


def _quota(key: QuotaKey, values: Values) -> str | None:
    value = values.get(key)
    return None if value is None else text_of(key, value)


def _plan_znode(zookeeper: ZooKeeper, act: Act, path: str) -> ZnodeUndo:
    before, after = _znode(act, act.before), _znode(act, act.after)
    if act.kind != ZNODE_CREATE and before is None:
        raise Refused(f"act {act.act_id} cannot be taken back: the node's data was too long to be kept")
    if isinstance(act.before, dict) and act.before.get("session") is not None and act.kind == ZNODE_DELETE:
        raise Refused(f"act {act.act_id} cannot be taken back: {path} belonged to session {act.before['session']}")
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
    row = UndoRow(f"znode {path}", "data", _bytes_text(change.before), _bytes_text(change.after))
    return ZnodeUndo(act, (row,), change)


def _znode(act: Act, state: object) -> bytes | None:
    if state is None:
        return None
    try:
        return data_of(cast("dict[str, Any]", state))
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"act {act.act_id} cannot be taken back: its data cannot be read ({error})") from None


def _bytes_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _leaders(act: Act, topic: str, state: object) -> dict[TopicPartition, int]:
    if not isinstance(state, dict):
        raise Refused(f"act {act.act_id} cannot be taken back: its leaders were too many to be kept")
    try:
        return {TopicPartition(topic, int(number)): int(leader) for number, leader in state.items()}
    except (TypeError, ValueError) as error:
        raise Refused(f"act {act.act_id} cannot be taken back: its leaders cannot be read ({error})") from None


def _plan_level(zookeeper: ZooKeeper, act: Act, subject: str) -> SchemaLevelUndo:
    before, after = (_level(act, state) for state in (act.before, act.after))
    registry = SchemaRegistry(zookeeper)
    if subject:
        found = registry.subjects([subject])
        now = found[0].level if found else None
    else:
        now = registry.settings().level
    _refuse_moved_level(act, now)
    row = UndoRow(f"schema {subject}" if subject else "schemas", LEVEL, now, before)
    return SchemaLevelUndo(act, subject, (row,), after, before)


def _level(act: Act, state: object) -> str | None:
    level = state.get(LEVEL) if isinstance(state, dict) else 0
    if level is None or level in list(Level):
        return level
    raise Refused(f"act {act.act_id} cannot be taken back: its compatibility level cannot be read")


def _refuse_moved_level(act: Act, now: str | None) -> None:
    after = _level(act, act.after)
    if now != after:
        what = f"subject {act.schema}" if act.schema else "the schema registry"
        raise Refused(
            f"{what} has changed since act {act.act_id}: its compatibility level is {now or 'not set'}, "
            f"and the act left it {after or 'not set'}",
            hint="`klog schema level` sets it",
        )


def _undo_level(zookeeper: ZooKeeper, plan: SchemaLevelUndo) -> None:
    registry, actor = SchemaRegistry(zookeeper), here(zookeeper, undo_client(plan.act.act_id))
    if not plan.subject:
        registry.set_level(plan.then or DEFAULT_LEVEL, actor, lambda now: _refuse_moved_level(plan.act, now))
        return

    def decide(settings: Settings, there: Subject) -> Subject:
        _refuse_moved_level(plan.act, there.level)
        return replace(there, level=plan.then)

    registry.change(plan.subject, decide, actor)


def _replicas(act: Act, state: object) -> dict[int, tuple[int, ...]]:
    if not isinstance(state, dict):
        raise Refused(f"act {act.act_id} cannot be taken back: its assignment was too long to be kept")
    try:
        return {int(number): tuple(map(int, replicas)) for number, replicas in state.items()}
    except (TypeError, ValueError) as error:
        raise Refused(f"act {act.act_id} cannot be taken back: its assignment cannot be read ({error})") from None


def _refuse_moved(act: Act, now: offset_acts.State) -> None:
    """Refused, with the difference, where these offsets are not those that the act left."""
    after = offset_acts.decoded(act, act.after)
    moved = [name for name, found in now.items() if _offset(found) != _offset(after[name])]
    group = shlex.quote(act.group or "")
    _refuse(
        f"the offsets of group {act.group} have",
        act,
        [f"{name} is at {_text(now.get(name))}, and the act left it at {_text(after[name])}" for name in moved],
        hint=f"`klog lag {group}` shows where it is; `klog group rewind` sets its offsets",
    )


def _refuse(what: str, act: Act, moved: Sequence[str], *, hint: str) -> None:
    """Raise Refused if there are differences, and name the first of them."""
    if moved:
        more = f"; and {len(moved) - SHOWN_MAX} more" if len(moved) > SHOWN_MAX else ""
        listed = "; ".join(moved[:SHOWN_MAX])
        raise Refused(f"{what} changed since act {act.act_id}: {listed}{more}", hint=hint)


def _offset(found: CommittedOffset | None) -> int | None:
    return None if found is None else found.offset


def _shown(found: CommittedOffset | None) -> str | None:
    return None if found is None else str(found.offset)


def _text(found: CommittedOffset | None) -> str:
    return _shown(found) or "no offset"


async def undo(cluster: Cluster, zookeeper: ZooKeeper, plan: Undo) -> None:
    """Carry it out. The cluster's client id must be `undo_client` of the act, so that the new act names the old one.

    Raises NonEmptyGroup if it is about a group that has members.
    """
    if isinstance(plan, OffsetsUndo):

        def check_not_moved(before: offset_acts.State) -> bool:
            _refuse_moved(plan.act, before)
            return True

        await asyncio.to_thread(
            offset_changes.write,
            zookeeper,
            plan.group,
            plan.change,
            hint="stop them first: they would commit over it",
            check_before=check_not_moved,
            actor=here(zookeeper, undo_client(plan.act.act_id)),
        )
        return
    if isinstance(plan, SchemaLevelUndo):
        await asyncio.to_thread(_undo_level, zookeeper, plan)
        return
    if isinstance(plan, AclUndo):
        from klog.admin.acls import add_acls, filter_of, remove_acls

        if plan.remove:
            await remove_acls(cluster, [filter_of(one) for one in plan.remove])
        if plan.add:
            await add_acls(cluster, plan.add)
        return
    if isinstance(plan, QuotaUndo):
        from klog.admin.quotas import alter_quotas

        await alter_quotas(cluster, plan.entity, plan.change)
        return
    if isinstance(plan, ZnodeUndo):
        await write_znode(zookeeper, plan.change, here(zookeeper, undo_client(plan.act.act_id)))
        return
    if isinstance(plan, ElectionUndo):
        from klog.client.reassignments import elect_replicas

        _refuse_failures(plan.act, await elect_replicas(cluster, plan.change))
        return
    if isinstance(plan, DeletionUndo):
        from klog.admin.trash import plan_restore, restore_topic

        await restore_topic(cluster, await plan_restore(cluster, zookeeper, plan.topic))
        return
    if isinstance(plan, ReassignmentUndo):
        await _reassign(cluster, plan)
        return
    from klog.admin.settings import alter_topic_settings

    await alter_topic_settings(
        cluster,
        plan.topic,
        {name: value for name, value in plan.change.items() if value is not None},
        [name for name, value in plan.change.items() if value is None],
    )


async def _reassign(cluster: Cluster, plan: ReassignmentUndo) -> None:
    from klog.client.reassignments import alter_reassignments

    wanted = {TopicPartition(plan.topic, number): replicas for number, replicas in plan.change.items()}
    _refuse_failures(plan.act, await alter_reassignments(cluster, wanted))


def _refuse_failures(act: Act, outcomes: Mapping[TopicPartition, KlogError | None]) -> None:
    for name, error in outcomes.items():
        if error is not None:
            raise Refused(f"act {act.act_id} is not taken back as a whole: {name}: {error.message}")


def undo_client(act_id: str) -> str:
    """The client id under which an act is taken back."""
    return f"{acts.UNDO_CLIENT}{act_id}"
