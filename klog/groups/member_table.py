"""The members of a group in the order in which they joined; static ones also by their instance id (KIP-345)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from klog.errors import FencedInstanceId, GroupMaxSizeReached, InconsistentGroupProtocol, UnknownMemberId
from klog.groups.bounds import GROUP_BYTES_MAX
from klog.groups.members import NEVER_S, Join, Member, common_protocols


class MemberTable:
    """``leader``: the id of the member that assigns the partitions, "" without members.

    A join looks at no other member, for in a large group all join at once.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters = Counter[str]()
        """By protocol."""
        self.deadline_s = NEVER_S
        """No member is removed for want of heartbeats before. `look_again` after that."""
        self.leader = ""
        self.size_bytes = 0
        """Of all members."""

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        """The member with this id, or None."""
        return self._members.get(member_id)

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """The member that sent a request. Raises UnknownMemberId, FencedInstanceId."""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                raise UnknownMemberId(f"group {self._group!r} has no static member {instance_id!r}")
            if known != member_id:
                raise FencedInstanceId(f"another process is static member {instance_id!r} of group {self._group!r}")
        if member_id not in self._members:
            raise UnknownMemberId(f"group {self._group!r} has no member {member_id!r}")
        return self._members[member_id]

    def static(self, instance_id: str | None) -> Member | None:
        """The member with this instance id, or None."""
        known = None if instance_id is None else self._static.get(instance_id)
        return None if known is None else self._members[known]

    def add(self, member: Member) -> None:
        """Add a member; the first is the leader."""
        self._members[member.member_id] = member
        self._supporters.update(_protocols(member))
        self.expect(member, member.deadline_s)
        self.count(member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the next one becomes leader."""
        del self._members[member.member_id]
        self._withdraw(member)
        self.size_bytes -= member.counted_bytes
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), "")

    def replace(self, old: Member, new: Member) -> None:
        """Replace a member in its place of the order; leadership passes on."""
        assert new.instance_id is not None, "only static members are replaced"
        self._members = {
            (new if one is old else one).member_id: new if one is old else one for one in self._members.values()
        }
        self._static[new.instance_id] = new.member_id
        self._withdraw(old)
        self._supporters.update(_protocols(new))
        self.expect(new, new.deadline_s)
        self.size_bytes -= old.counted_bytes
        self.count(new)
        if self.leader == old.member_id:
            self.leader = new.member_id

    def _withdraw(self, member: Member) -> None:
        for name in _protocols(member):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def clear(self) -> None:
        self._members.clear()
        self._static.clear()
        self._supporters.clear()
        self.deadline_s = NEVER_S
        self.leader = ""
        self.size_bytes = 0

    def takes(self, member: Member, join: Join) -> None:
        """Update a member that joins again."""
        self._withdraw(member)
        member.takes(join)
        self._supporters.update(_protocols(member))
        self.count(member)

    def give(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self.count(member)

    def count(self, member: Member) -> None:
        """Update a member's counted size."""
        self.size_bytes += member.size_bytes - member.counted_bytes
        member.counted_bytes = member.size_bytes

    def check_room(self, join: Join, known: Member | None, members_max: int, *, of_joined: bool) -> None:
        """Raise GroupMaxSizeReached unless there is room for this member, known or new, and for its metadata.

        ``of_joined``: count only the members that have joined by now.
        """
        others_bytes = self.size_bytes - (0 if known is None else known.counted_bytes)
        if others_bytes + join.size_bytes > GROUP_BYTES_MAX:
            raise GroupMaxSizeReached(
                f"the members of group {self._group!r} take {others_bytes} of {GROUP_BYTES_MAX} bytes: no room for "
                f"{join.size_bytes} more"
            )
        if known is not None and (known.joining is not None or not of_joined):
            return
        if len(self) >= members_max and members_max <= sum(
            1 for one in self if one is not known and (one.joining is not None or not of_joined)
        ):
            raise GroupMaxSizeReached(f"group {self._group!r} has {len(self)} members; group.max.size is {members_max}")

    def check_protocols(self, join: Join, replaced: Member | None, protocol_type: str) -> None:
        """Raise InconsistentGroupProtocol unless all members share a protocol; a single member may have any."""
        known = self._members.get(join.member_id, replaced)
        others = len(self) - (known is not None)
        names = {name for name, _ in join.protocols}
        own = set() if known is None else _protocols(known)
        if not join.protocol_type or not names:
            raise InconsistentGroupProtocol("a member must name a protocol type and at least one protocol")
        is_shared = any(self._supporters[name] - (name in own) == others for name in names)
        if others and (join.protocol_type != protocol_type or not is_shared):
            common = common_protocols([one for one in self if one is not known])
            raise InconsistentGroupProtocol(
                f"group {self._group!r} ({protocol_type}) agrees on {sorted(common)}; "
                f"offered are {sorted(names)} ({join.protocol_type})"
            )

    @property
    def have_all_joined(self) -> bool:
        """Whether every member waits for the next generation; found without looking further than the first that does
        not, and asked at every join."""
        return all(member.joining is not None for member in self._members.values())

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest rebalance time-out of all members."""
        return max((member.rebalance_timeout_s for member in self._members.values()), default=0.0)

    def expect(self, member: Member, until_s: float) -> None:
        """Remove the member without a heartbeat until then; NEVER_S: it may be silent."""
        member.deadline_s = until_s
        self.deadline_s = min(self.deadline_s, until_s)

    def look_again(self) -> None:
        """Find the next deadline: earlier ones have moved, or are over."""
        self.deadline_s = min((member.deadline_s for member in self._members.values()), default=NEVER_S)


def _protocols(member: Member) -> set[str]:
    return {name for name, _ in member.protocols}
