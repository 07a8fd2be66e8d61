"""Acts on committed offsets: kinds ``offsets`` and ``group-delete``, and the state that they keep.

``before`` and ``after`` are objects from ``topic-partition`` to the offset, null where there is none, or to
``{"offset":5,"leader_epoch":2,"metadata":"..."}`` where the commit has an epoch or metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from klog.coordination import acts
from klog.coordination.acts import Act, Actor
from klog.coordination.committed import CommittedOffset
from klog.errors import Refused
from klog.names import TopicPartition, is_topic_name

OFFSETS: Final = "offsets"
GROUP_DELETE: Final = "group-delete"
KINDS: Final = frozenset({OFFSETS, GROUP_DELETE})

_NUMBER = re.compile("[0-9]{1,9}")

State = Mapping[TopicPartition, CommittedOffset | None]


def new_offset_act(kind: str, actor: Actor, group: str, before: State, after: State) -> Act:
    """An act of now, of one group. ``before`` may lack partitions without a committed offset."""
    return acts.new_act(kind, actor, group=group, before=_encoded(before, after), after=_encoded(after, after))


def _encoded(state: State, names: Iterable[TopicPartition]) -> dict[str, Any]:
    return {str(name): _value(state.get(name)) for name in names}


def _value(committed: CommittedOffset | None) -> Any:
    if committed is None:
        return None
    if committed.leader_epoch < 0 and not committed.metadata:
        return committed.offset
    return {"offset": committed.offset, "leader_epoch": committed.leader_epoch, "metadata": committed.metadata}


def decoded(act: Act, state: Any) -> dict[TopicPartition, CommittedOffset | None]:
    """``before`` or ``after`` of such an act. Raises Refused if it was too long to be kept, or cannot be read."""
    if not isinstance(state, dict):
        raise Refused(f"act {act.act_id} cannot be taken back: its offsets were too many to be kept")
    try:
        return {_partition(name): _committed(value) for name, value in state.items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"act {act.act_id} cannot be taken back: its offsets cannot be read ({error})") from None


def _partition(name: str) -> TopicPartition:
    """ValueError for a name that is not a partition's: it must not become part of a path."""
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
