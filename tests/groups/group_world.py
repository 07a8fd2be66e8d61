"""A group with everything around it in memory: a registry that may be slow, away, or changed by another's hand, and a
clock. What a group decides is carried out here as its coordinator would, step by step.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from klog.coordination.group_states import FREE, GroupState
from klog.errors import KlogError, NotCoordinator
from klog.groups.bounds import GroupLimits
from klog.groups.group import Group
from klog.groups.members import NEVER_S, Asked, Caller, Join, Leave, MakeNode, Sync
from klog.groups.outcomes import Answer, Joined, Left, Made, Outcome, Refused, Result, Synced, Write

RANGE = (("range", b"r"),)
SESSION_MS = 10_000
REBALANCE_MS = 30_000


class GroupWorld:
    """``instant``: the registry writes at once; otherwise when `write_ends` is called."""

    def __init__(self, limits: GroupLimits = GroupLimits(), *, instant: bool = True) -> None:
        self.limits = limits
        self.instant = instant
        self.now_s = 1000.0
        self.registry = GroupState("g")
        self.writing: GroupState | None = None
        self.answers: dict[int, Result] = {}
        self.tokens = itertools.count(1)
        self.ids = itertools.count(1)
        self.waiting: set[int] = set()
        self.group = Group(self.registry, limits, self.now_s)

    # --- requests: each returns the token under which its answer will be found --------------------------------------

    def join(self, member_id: str = "", **values: Any) -> int:
        join = Join(
            member_id,
            values.get("instance"),
            "client",
            "/127.0.0.1",
            values.get("session_ms", SESSION_MS),
            values.get("rebalance_ms", REBALANCE_MS),
            values.get("type", "consumer"),
            values.get("protocols", RANGE),
            f"m{next(self.ids)}",
            values.get("twice", False),
        )
        return self._ask(join)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> int:
        return self._ask(Sync(Caller(member_id, instance, generation), protocol, assignments or {}))

    def leave(self, *leaving: tuple[str, str | None]) -> int:
        return self._ask(Leave(leaving))

    def make_node(self) -> int:
        return self._ask(MakeNode())

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        """The error's code; 0 for none."""
        return code(self.group.heartbeat(Caller(member_id, instance, generation), self.now_s))

    def commit(self, member_id: str, generation: int, instance: str | None = None) -> int:
        """The code that a commit gets before anything is written."""
        return code(self.group.refuses_commit(Caller(member_id, instance, generation), self.now_s))

    def _ask(self, asked: Asked) -> int:
        token = next(self.tokens)
        self.waiting.add(token)
        self.do(self.group.ask(asked, token, self.now_s))
        return token

    # --- what happens -----------------------------------------------------------------------------------------------

    def do(self, outcomes: list[Outcome]) -> None:
        for act in outcomes:
            match act:
                case Answer(to, what):
                    assert to in self.waiting, f"answered twice, or never asked: {act}"
                    self.waiting.discard(to)
                    self.answers[to] = what
                    self.told(what)
                case Write(state):
                    assert self.writing is None, "two writes at once"
                    assert state.version == self.registry.version or not self.instant
                    self.writing = state
        if self.instant and self.writing is not None:
            self.write_ends()

    def told(self, what: Result) -> None:
        """Nothing is said that the registry does not have."""
        if isinstance(what, Joined):
            assert what.generation == self.registry.generation
            assert what.member_id in {one.member_id for one in self.registry.members}
        elif isinstance(what, Synced):
            assert self.registry.is_assigned
            assert what.assignment in {one.assignment for one in self.registry.members}

    def write_ends(self) -> None:
        """It is written, unless somebody else has written since."""
        state, self.writing = self.writing, None
        assert state is not None
        if state.version != self.registry.version:
            self.do(self.group.replaced(self.registry, self.now_s))
            return
        assert state.generation >= self.registry.generation, "a generation went back"
        self.registry = state.written
        self.do(self.group.written(self.now_s))

    def write_in_doubt(self) -> None:
        self.do(self.group.write_in_doubt(self.now_s))

    def forced_rewind(self) -> None:
        """An operator writes the group without members."""
        group_protocol = self.registry.group_protocol if self.registry.version >= 0 else FREE
        self.registry = replace(
            self.registry,
            group_protocol=group_protocol,
            members=(),
            is_assigned=False,
            generation=self.registry.generation + 1,
            version=self.registry.version + 1,
        )

    def take_over(self, *, has_landed: bool = False) -> None:
        """The coordinator is gone; another one reads what there is. A write under way may have landed."""
        state, self.writing = self.writing, None
        if state is not None and has_landed and state.version == self.registry.version:
            self.registry = state.written
        self.do(self.group.resign(NotCoordinator("gone")))
        self.group = Group(self.registry, self.limits, self.now_s)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with every deadline kept."""
        until_s = self.now_s + seconds
        while (deadline_s := self.group.deadline_s) <= until_s:
            self.now_s = max(self.now_s, deadline_s)
            self.do(self.group.tick(self.now_s))
        self.now_s = until_s
        self.do(self.group.tick(self.now_s))

    @property
    def deadline_s(self) -> float | None:
        """Seconds until something happens by itself."""
        return None if self.group.deadline_s == NEVER_S else self.group.deadline_s - self.now_s

    # --- answers ----------------------------------------------------------------------------------------------------

    def joined(self, token: int) -> Joined:
        answer = self.answers[token]
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, token: int) -> bytes:
        answer = self.answers[token]
        assert isinstance(answer, Synced), answer
        return answer.assignment

    def refused(self, token: int) -> int:
        answer = self.answers[token]
        assert isinstance(answer, Refused), answer
        return answer.error.wire

    def left(self, token: int) -> list[int]:
        answer = self.answers[token]
        assert isinstance(answer, Left), answer
        return [code(one) for one in answer.errors]

    def made(self, token: int) -> bool:
        return isinstance(self.answers[token], Made)

    def settle(self, *member_ids: str) -> int:
        """These join, as new ones where the id is "", and sync; the generation. Who was a member already joins too."""
        tokens = [self.join(one) for one in member_ids]
        return self.share_out(*(self.joined(token) for token in tokens))

    def share_out(self, *joined: Joined) -> int:
        """All of them sync; the leader gives each its own name."""
        tokens = [
            self.sync(
                one.member_id,
                one.generation,
                {member: member.encode() for member, _, _ in one.members} if one.members else None,
            )
            for one in sorted(joined, key=lambda one: not one.members)
        ]
        assert all(self.synced(token) for token in tokens)
        return joined[0].generation

    @property
    def names(self) -> list[str]:
        return [member.member_id for member in self.group.members]


def code(error: KlogError | None) -> int:
    return 0 if error is None else error.wire
