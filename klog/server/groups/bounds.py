"""What a member, a group, and all groups of a broker may take (rule P2).

Whoever joins is a stranger, and is remembered for as long as it says that it lives.

    an id, the name of a group or protocol   `NAME_BYTES_MAX`
    what one member says                     `PROTOCOLS_MAX` protocols, `MEMBER_BYTES_MAX` in all of them
    what one group takes                     `GROUP_BYTES_MAX`, assignments included; and ``group.max.size`` members
    what all groups of a broker take         `BROKER_BYTES_MAX`, with joins that are under way
    ids that were given out                  `PENDING_MAX` a group; the oldest is forgotten, and its holder begins anew
    groups in which nobody lives             `IDLE_GROUPS_MAX` are kept in memory; ZooKeeper has them all

Kafka bounds none of these but members: there a request's size does, and the size of a message of its own topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klog.errors import InvalidGroupId, InvalidRequest, UnknownMemberId

NAME_BYTES_MAX = 1024
MEMBER_ID_BYTES_MAX = NAME_BYTES_MAX + 64
"""An id that is given out is a client's or an instance's, with a number behind it."""
CLIENT_ID_CHARS_MAX = 255
"""Of what a client calls itself so much is kept, and shown."""
PROTOCOLS_MAX = 100
MEMBER_BYTES_MAX = 4 * 1024 * 1024
"""A consumer that names 30,000 topics and as many partitions that it has, by two protocols, takes as much."""
GROUP_BYTES_MAX = 16 * 1024 * 1024
BROKER_BYTES_MAX = 512 * 1024 * 1024
PENDING_MAX = 10_000
IDLE_GROUPS_MAX = 10_000
MEMBER_OVERHEAD_BYTES = 1024
"""What a member takes that says nothing."""


def check_group(name: str) -> None:
    """InvalidGroupId for a name that no group can have."""
    if not name:
        raise InvalidGroupId("a group has a name")
    if _is_long(name):
        raise InvalidGroupId(f"a group's name of {len(name)} characters; at most {NAME_BYTES_MAX} bytes are allowed")


def check_member(member_id: str, instance_id: str | None) -> None:
    """UnknownMemberId, InvalidRequest for ids that nobody can have."""
    if _is_long(member_id, MEMBER_ID_BYTES_MAX):
        raise UnknownMemberId(f"a member's id of {len(member_id)} characters: no member has it")
    if instance_id is not None and _is_long(instance_id):
        raise InvalidRequest(f"an instance id of {len(instance_id)} characters; at most {NAME_BYTES_MAX} bytes")


def check_protocols(protocol_type: str, protocols: Iterable[tuple[str, int]]) -> None:
    """InvalidRequest unless a member may say so much: of each protocol its name and the bytes that go with it."""
    said = list(protocols)
    if len(said) > PROTOCOLS_MAX or any(_is_long(name) for name in (protocol_type, *(name for name, _ in said))):
        raise InvalidRequest(f"a member names at most {PROTOCOLS_MAX} protocols, of {NAME_BYTES_MAX} bytes each")
    size = sum(size for _, size in said)
    if size > MEMBER_BYTES_MAX:
        raise InvalidRequest(f"a member sends {size} bytes of metadata; at most {MEMBER_BYTES_MAX} are kept")


def check_assignments(assignments: Mapping[str, bytes]) -> None:
    """InvalidRequest where the members of a group are given more than is kept."""
    size = sum(map(len, assignments.values()))
    if size > GROUP_BYTES_MAX:
        raise InvalidRequest(f"a generation's assignments have {size} bytes; at most {GROUP_BYTES_MAX} are kept")


def _is_long(name: str, bytes_max: int = NAME_BYTES_MAX) -> bool:
    return len(name) > bytes_max or len(name.encode(errors="replace")) > bytes_max
