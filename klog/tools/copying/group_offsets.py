"""The committed offsets of groups in one cluster of a copy, by its brokers: listed, read, written.

What is written is a commit without a member (generation -1), which a coordinator refuses while the group has members.

A mirror commits in its sources how far each partition is copied, and where that is in the target. The offset is the
next one to copy; the metadata maps it, ``{"klog.mirror":1,"target":ID,"topic_id":ID,"of":ID,"end":OFFSET}``: everything
of the source below the commit is in the target's topic (of that id) below ``end``, and the source's topic had the id
``of``. A start reads the target from there on only, and a person sees which offset of the one log is which of the
other.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from klog.client import group_requests
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.client.partition_requests import by_partition
from klog.errors import IllegalGeneration, NonEmptyGroup, UnknownMemberId, UsageError
from klog.names import TopicPartition, regular_expression
from klog.protocol.apis import ApiKey
from klog.tools.copying.cluster_endpoint import ClusterEndpoint

PARTITIONS_AT_ONCE = 1000
"""Of one commit: a coordinator takes about a megabyte of metadata in each."""


class GroupNames:
    """Groups by their names, with commas between, or by regular expressions for whole names."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """UsageError for an invalid expression."""
        self.named: list[str] = []
        self.expressions: list[re.Pattern[str]] = []
        for text in texts:
            if re.search(r"[\\^$*+?()\[\]{}|]", text):
                self.expressions.append(regular_expression(text, "--groups"))
            else:
                self.named += filter(None, text.split(","))
        if texts and not self:
            raise UsageError("--groups is empty", hint="--groups '.*' selects all")

    def __bool__(self) -> bool:
        return bool(self.named or self.expressions)

    def among(self, there: Iterable[str]) -> list[str]:
        """Those to ask for, of all that there are; one that is named need not be there yet."""
        matching = (name for name in there if any(one.fullmatch(name) for one in self.expressions))
        return list(dict.fromkeys([*self.named, *matching]))


class Commit(NamedTuple):
    """What a group has committed in a partition."""

    offset: int
    metadata: str = ""


Commits = Mapping[TopicPartition, Commit]


class Position(NamedTuple):
    """Copied up to ``offset`` of the source, which stands below ``end`` of the target's topic.

    ``target`` is a cluster's id, the others those of topics; what is "" or -1 was not committed by a mirror.
    """

    offset: int
    target: str = ""
    topic_id: str = ""
    of: str = ""
    end: int = -1

    @property
    def commit(self) -> Commit:
        known = {"target": self.target, "topic_id": self.topic_id, "of": self.of, "end": self.end}
        return Commit(self.offset, json.dumps({"klog.mirror": 1, **known}, separators=(",", ":")))

    @classmethod
    def of_commit(cls, commit: Commit) -> Position:
        """What was committed; metadata of anybody else's is none."""
        try:
            found = json.loads(commit.metadata)
            if found["klog.mirror"] != 1:
                return cls(commit.offset)
            return cls(commit.offset, str(found["target"]), str(found["topic_id"]), str(found["of"]), int(found["end"]))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return cls(commit.offset)


class GroupOffsets:
    """The groups of one cluster. ``side`` is used, and stays open. Event loop only."""

    def __init__(self, side: ClusterEndpoint) -> None:
        self._side = side

    async def chosen(self, wanted: GroupNames) -> list[str]:
        return wanted.among(await self.names() if wanted.expressions else ())

    async def names(self) -> list[str]:
        async def ask(cluster: Cluster) -> list[str]:
            answers = await cluster.to_each(ApiKey.LIST_GROUPS, 4, states_filter=[])
            # The groups of a broker that does not answer are another's in a moment.
            groups = [one for answer in answers.values() for one in getattr(answer, "groups", ())]
            return sorted({str(one.group_id) for one in groups})

        return await self._side.patiently(ask)

    async def read(self, groups: Collection[str], within: Collection[TopicPartition]) -> dict[str, Commits]:
        """What these have committed in these partitions."""
        wanted = set(within)
        found = await asyncio.gather(*(self._read(group, wanted) for group in groups))
        return dict(zip(groups, found, strict=True))

    async def _read(self, group: str, within: set[TopicPartition]) -> Commits:
        wanted = {"group_id": group, "topics": None, "require_stable": False}
        answer = await self._side.patiently(
            lambda cluster: group_requests.to_coordinator(cluster, group, ApiKey.OFFSET_FETCH, 7, 2, **wanted)
        )
        check(answer, f"the offsets of group {group}")
        return {
            name: Commit(int(one.committed_offset), str(one.metadata or ""))
            for name, one in by_partition(answer.topics)
            if name in within and int(one.error_code) == 0 and one.committed_offset >= 0
        }

    async def write(self, group: str, commits: Commits) -> None:
        """NonEmptyGroup where the group has members."""
        wanted = sorted(commits.items())
        for at in range(0, len(wanted), PARTITIONS_AT_ONCE):
            some = dict(wanted[at : at + PARTITIONS_AT_ONCE])
            try:
                await self._side.patiently(partial(group_requests.commit, group=group, offsets=some))
            except (UnknownMemberId, IllegalGeneration) as error:
                raise NonEmptyGroup(f"group {group!r} has live members") from error
