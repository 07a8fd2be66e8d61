"""Limits of a member, of a group, and of all groups of a broker (rule P2).

Any client may join, and is remembered for as long as it sends heartbeats.

    an id, the name of a group or protocol   `NAME_BYTES_MAX`
    what one member sends                    `PROTOCOLS_MAX` protocols, `MEMBER_BYTES_MAX` in all of them
    what one group takes                     `GROUP_BYTES_MAX`, assignments included; and ``group.max.size`` members
    what all groups of a broker take         `BROKER_BYTES_MAX`, with joins that are under way
    ids that were given out                  `PENDING_MAX` per group; the oldest is forgotten; its client gets another
    groups without members                   `IDLE_GROUPS_MAX` are kept in memory; ZooKeeper has them all

Kafka limits only the number of members; the rest is bounded by the size of a request, and of a message of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klog.errors import InvalidGroupId, InvalidRequest, UnknownMemberId

NAME_BYTES_MAX = 1024
MEMBER_ID_BYTES_MAX = NAME_BYTES_MAX + 64
"""The length of a generated id: a client id or an instance id, followed by a number."""
CLIENT_ID_CHARS_MAX = 255
"""A longer client id is truncated."""
PROTOCOLS_MAX = 100
MEMBER_BYTES_MAX = 4 * 1024 * 1024
"""The size of a consumer that names 30,000 topics and as many owned partitions, in two protocols."""
GROUP_BYTES_MAX = 16 * 1024 * 1024
BROKER_BYTES_MAX = 512 * 1024 * 1024
PENDING_MAX = 10_000
IDLE_GROUPS_MAX = 10_000
MEMBER_OVERHEAD_BYTES = 1024
"""The size of a member without protocols."""


def check_group(name: str) -> None:
    """Raise InvalidGroupId unless a group can have this name."""
    if not name:
        raise InvalidGroupId("the group's name is empty")
    if _is_long(name):
        raise InvalidGroupId(f"the group's name must have at most {NAME_BYTES_MAX} bytes, got {len(name)} characters")


def check_member(member_id: str, instance_id: str | None) -> None:
    """Raise UnknownMemberId or InvalidRequest unless a member can have these ids."""
    if _is_long(member_id, MEMBER_ID_BYTES_MAX):
        raise UnknownMemberId(f"a member id of {len(member_id)} characters: longer than any")
    if instance_id is not None and _is_long(instance_id):
        raise InvalidRequest(f"an instance id must have at most {NAME_BYTES_MAX} bytes, got {len(instance_id)}")


def check_protocols(protocol_type: str, protocols: Iterable[tuple[str, int]]) -> None:
    """Raise InvalidRequest if a member sends too much. ``protocols``: name and bytes of metadata."""
    said = list(protocols)
    if len(said) > PROTOCOLS_MAX or any(_is_long(name) for name in (protocol_type, *(name for name, _ in said))):
        raise InvalidRequest(f"a member may name {PROTOCOLS_MAX} protocols, each of at most {NAME_BYTES_MAX} bytes")
    size = sum(size for _, size in said)
    if size > MEMBER_BYTES_MAX:
        raise InvalidRequest(f"a member's metadata must have at most {MEMBER_BYTES_MAX} bytes, got {size}")


def check_assignments(assignments: Mapping[str, bytes]) -> None:
    """Raise InvalidRequest if a group's assignments are too large."""
    size = sum(map(len, assignments.values()))
    if size > GROUP_BYTES_MAX:
        raise InvalidRequest(f"a generation's assignments must have at most {GROUP_BYTES_MAX} bytes, got {size}")


def _is_long(name: str, bytes_max: int = NAME_BYTES_MAX) -> bool:
    return len(name) > bytes_max or len(name.encode(errors="replace")) > bytes_max


class GroupLimits(NamedTuple):
    """Settings of the broker."""

    session_min_ms: int = 6000
    session_max_ms: int = 1_800_000
    initial_delay_s: float = 0.0
    members_max: int = 2**31 - 1
