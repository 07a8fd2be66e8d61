"""Acts: who changed what of the cluster, and how to take it back. `klog.coordination.acts` has what is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from klog.coordination import acts, topics
from klog.coordination.acts import Act
from klog.errors import NoSuchThing, Refused

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

READ_AT_ONCE: Final = 500
SETTINGS: Final = "topic-settings"

CANNOT_BE_UNDONE: Final[Mapping[str, str]] = {
    "topic-create": "`klog topic delete` removes the topic and its messages",
    "topic-delete": "its messages are gone; the act has its assignment and settings",
    "partitions-add": "a topic cannot get fewer partitions: keys would change their partition once more",
}
"""Why the other kinds of act are not taken back."""


@dataclass(frozen=True, slots=True)
class ActRow:
    """One act. ``before`` and ``after`` show what differs."""

    act: str
    time: datetime
    principal: str
    client: str
    kind: str
    subject: str
    before: str
    after: str
    undone_by: str | None
    undoes: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class UndoRow:
    """One setting that an undo changes: ``now`` and ``then`` are None where the topic has none of its own."""

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


def list_acts(
    zookeeper: ZooKeeper,
    *,
    since_ms: int | None = None,
    by: str | None = None,
    topic: str | None = None,
    group: str | None = None,
) -> list[ActRow]:
    """The acts that the registry has, the oldest first. ``by``: a part of the principal or the client id. Blocks."""
    found = _read_all(zookeeper)
    undone = _undone(found)
    return [
        row(act, undone.get(act.act_id))
        for act in found
        if (since_ms is None or act.time_ms >= since_ms)
        and (by is None or by in act.actor.client or by in principal(act))
        and topic in (None, act.topic)
        and group in (None, act.group)
    ]


def show_act(zookeeper: ZooKeeper, act_id: str) -> tuple[ActRow, Act]:
    """One act; NoSuchThing. Blocks."""
    act = _the_act(zookeeper, act_id)
    return row(act, _undone_by(zookeeper, act_id)), act


def _read_all(zookeeper: ZooKeeper) -> list[Act]:
    ids = acts.list_ids(zookeeper)
    return [act for at in range(0, len(ids), READ_AT_ONCE) for act in acts.read(zookeeper, ids[at : at + READ_AT_ONCE])]


def _the_act(zookeeper: ZooKeeper, act_id: str) -> Act:
    act = acts.find(zookeeper, act_id)
    if act is None:
        raise NoSuchThing(f"there is no act {act_id!r}", hint="`klog acts list` shows the acts")
    return act


def _undone_by(zookeeper: ZooKeeper, act_id: str) -> str | None:
    return _undone(_read_all(zookeeper)).get(act_id)


def _undone(found: Sequence[Act]) -> dict[str, str]:
    """Act -> the one that took it back. Any client can claim that: it must have brought back what was before."""
    by_id = {act.act_id: act for act in found}
    return {
        act.undoes: act.act_id
        for act in found
        if act.undoes is not None and (first := by_id.get(act.undoes)) is not None and _takes_back(act, first)
    }


def _takes_back(act: Act, first: Act) -> bool:
    if act.kind != SETTINGS or (first.kind, first.topic) != (SETTINGS, act.topic):
        return False
    if not all(isinstance(state, dict) for state in (first.before, first.after, act.after)):
        return False
    return all(act.after.get(name) == first.before.get(name) for name in _changed(first.before, first.after))


def principal(act: Act) -> str:
    """``CLIENT@HOST``: until there are users, all that is known of who it was."""
    return f"{act.actor.client}@{act.actor.host}" if act.actor.host else act.actor.client


def row(act: Act, undone_by: str | None) -> ActRow:
    """An act as it is shown."""
    before, after = _difference(act)
    return ActRow(
        act.act_id,
        datetime.fromtimestamp(act.time_ms / 1000, UTC),
        principal(act),
        act.actor.client,
        act.kind,
        _subject(act),
        before,
        after,
        undone_by,
        act.undoes,
    )


def _subject(act: Act) -> str:
    return (
        f"topic {act.topic}" if act.topic is not None else f"group {act.group}" if act.group is not None else "cluster"
    )


def _difference(act: Act) -> tuple[str, str]:
    before, after = act.before, act.after
    if act.kind == SETTINGS and isinstance(before, dict) and isinstance(after, dict):
        changed = _changed(before, after)
        return _settings_text(before, changed), _settings_text(after, changed)
    return _text(before), _text(after)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _settings_text(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    return " ".join(f"{name}={settings[name]}" for name in names if name in settings) or "-"


def _text(state: Any) -> str:
    if state is None:
        return "-"
    if not isinstance(state, dict):
        return json.dumps(state)
    shown = {name: value for name, value in state.items() if name != "assignment" and value != {}}
    return " ".join(
        f"{name}={value if isinstance(value, str | int) else json.dumps(value)}" for name, value in shown.items()
    )


# --- undo


def plan_undo(zookeeper: ZooKeeper, act: Act) -> SettingsUndo:
    """What takes the act back. Refused where that is not possible, or where the state has moved on since: with the
    difference. Blocks."""
    if act.kind != SETTINGS:
        why = CANNOT_BE_UNDONE.get(act.kind, "this version of klog does not know how")
        raise Refused(f"act {act.act_id} ({act.kind}) cannot be taken back: {why}")
    if not isinstance(act.before, dict) or not isinstance(act.after, dict) or act.topic is None:
        raise Refused(f"act {act.act_id} cannot be taken back: its settings were too long to be kept")
    if topics.find(zookeeper, act.topic) is None:
        raise Refused(f"act {act.act_id} cannot be taken back: topic {act.topic} does not exist")
    now = topics.configs(zookeeper, [act.topic])[act.topic].settings
    moved = [name for name in _changed(act.before, act.after) if now.get(name) != act.after.get(name)]
    if moved:
        listed = "; ".join(
            f"{name} is {now.get(name) or 'not set'}, and the act left it {act.after.get(name) or 'not set'}"
            for name in moved
        )
        raise Refused(
            f"topic {act.topic} has changed since act {act.act_id}: {listed}",
            hint=f"`klog acts list --topic {act.topic}` shows who changed it",
        )
    change = {name: act.before.get(name) for name in _changed(act.before, act.after)}
    rows = tuple(UndoRow(f"topic {act.topic}", name, now.get(name), then) for name, then in change.items())
    return SettingsUndo(act, act.topic, rows, change)


async def undo(cluster: Cluster, plan: SettingsUndo) -> None:
    """Carry it out. The cluster's client id must be `undo_client` of the act, so that the new act names the old one."""
    from klog.admin.settings import alter_topic_settings

    await alter_topic_settings(
        cluster,
        plan.topic,
        {name: value for name, value in plan.change.items() if value is not None},
        [name for name, value in plan.change.items() if value is None],
    )


def undo_client(act_id: str) -> str:
    """The client id under which an act is taken back."""
    return f"{acts.UNDO_CLIENT}{act_id}"
