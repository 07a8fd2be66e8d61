"""Acts on committed offsets: kinds ``offsets`` and ``group-delete``, and their states.

``before`` and ``after`` map ``topic-partition`` to the offset, null for none, or to
``{"offset":5,"leader_epoch":2,"metadata":"..."}`` if the commit has an epoch or metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from klog.coordination import acts, committed, paths
from klog.coordination.acts import Act, Actor
from klog.coordination.committed import CommittedOffset
from klog.coordination.zookeeper import Check, Operation, ZNode, ZooKeeper
from klog.errors import Refused
from klog.names import TopicPartition, is_topic_name

OFFSETS: Final = "offsets"
GROUP_DELETE: Final = "group-delete"
KINDS: Final = frozenset({OFFSETS, GROUP_DELETE})
CARRIED: Final = '{"klog.groups":'
"""Prefix of the metadata of a mirror's commits for a group: a program's progress, unless it goes back."""

_NUMBER = re.compile("[0-9]{1,9}")

State = Mapping[TopicPartition, CommittedOffset | None]


def new_offset_act(kind: str, actor: Actor, group: str, before: State, after: State) -> Act:
    """A new act about one group. ``before`` may lack partitions without a committed offset."""
    return acts.new_act(kind, actor, group=group, before=_encoded(before, after), after=_encoded(after, after))


def noted(
    zookeeper: ZooKeeper,
    kind: str,
    actor: Actor,
    group: str,
    after: State,
    accept: Callable[[State], bool] = lambda before: True,
) -> list[Operation]:
    """The operations that write the act with the change, and make both fail once an offset has another commit.

    ``accept`` gets the current offsets, without epochs and metadata; nothing is written if it returns False. It may
    raise. Blocks.
    """
    where = [paths.consumer_offset(group, *name) for name in after]
    nodes = zookeeper.get_many(where)
    if not accept({name: _offset_in(node) for name, node in zip(after, nodes, strict=True)}):
        return []
    checks = [Check(path, node.stat.version) for path, node in zip(where, nodes, strict=True) if node is not None]
    before = committed.read(zookeeper, group, after)  # after the versions: a later commit makes the checks fail
    return [*checks, new_offset_act(kind, actor, group, before, after).write]


def _offset_in(node: ZNode | None) -> CommittedOffset | None:
    offset = None if node is None else committed.offset_in(node.data)
    return None if offset is None else CommittedOffset(offset)


def _encoded(state: State, names: Iterable[TopicPartition]) -> dict[str, Any]:
    return {str(name): _value(state.get(name)) for name in names}


def _value(found: CommittedOffset | None) -> Any:
    if found is None:
        return None
    if found.leader_epoch < 0 and not found.metadata:
        return found.offset
    return {"offset": found.offset, "leader_epoch": found.leader_epoch, "metadata": found.metadata}


def decoded(act: Act, state: Any) -> dict[TopicPartition, CommittedOffset | None]:
    """``before`` or ``after`` of such an act. Raises Refused if it was too long to be kept, or cannot be read."""
    if not isinstance(state, dict):
        raise Refused(f"act {act.act_id} cannot be taken back: its offsets were too many to be kept")
    try:
        return {_partition(name): _committed(value) for name, value in state.items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"act {act.act_id} cannot be taken back: its offsets cannot be read ({error})") from None


def _partition(name: str) -> TopicPartition:
    """Raises ValueError for a name that is not a partition's: it must not become part of a path."""
    topic, _, number = name.rpartition("-")
    if not is_topic_name(topic) or _NUMBER.fullmatch(number) is None:
        raise ValueError(f"{name!r} is not a partition")
    return TopicPartition(topic, int(number))


def _committed(value: Any) -> CommittedOffset | None:
    if value is None:
        return None
    if isinstance(value, dict):
        found = CommittedOffset(int(value["offset"]), int(value["leader_epoch"]), str(value["metadata"]))
    else:
        found = CommittedOffset(int(value))
    if not -(2**63) <= found.offset < 2**63 or not -1 <= found.leader_epoch < 2**31:
        raise ValueError(f"offset {found.offset} of epoch {found.leader_epoch}")
    return found
