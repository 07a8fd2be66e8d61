"""A group of stock clients under test: its members, and what they and ZooKeeper say of it.

`Group` starts members as processes (`tests.cluster.group_member`) and reads the group's committed offsets from
ZooKeeper all the time. Whether promises were kept, whatever was killed meanwhile, says `tests.cluster.group_judge`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from klog.coordination import committed
from klog.errors import KlogError
from tests.broker_fixture import ROOT
from tests.cluster.group_judge import judge_commits, judge_owners, judge_reads
from tests.cluster.load import Load
from tests.cluster_fixture import RunningCluster
from tests.until import until
from tests.zookeeper_fixture import session_of

SESSION_MS = 2000
LOOK_EVERY_S = 0.02
WAIT_S = 40.0


class MemberProcess:
    """One member; `events` are what it has said so far."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "tests.cluster.group_member", json.dumps(settings)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                return  # killed in the middle of a line

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def said(self, what: str) -> list[dict[str, Any]]:
        return [one for one in list(self.events) if one["is"] == what]

    @property
    def owned(self) -> tuple[int, frozenset[int]]:
        """(generation, partitions), as it last said."""
        found = self.said("owner")
        return (found[-1]["generation"], frozenset(found[-1]["partitions"])) if found else (-1, frozenset())

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9: it does not leave."""
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Group:
    """See the module. Used through `group_of`."""

    def __init__(self, cluster: RunningCluster, topic: str, partitions: int, **settings: Any) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = frozenset(range(partitions))
        self.name = f"group-of-{topic}"
        self.members: list[MemberProcess] = []
        self.samples: list[tuple[float, dict[int, int]]] = []
        """(when, partition -> what ZooKeeper had as committed)"""
        self._settings = {"strategy": "range", "session_ms": SESSION_MS, **settings}
        self._stop = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def _watch(self) -> None:
        with session_of(self.cluster.zookeeper) as zookeeper:
            while not self._stop.wait(LOOK_EVERY_S):
                try:
                    found = committed.read(zookeeper, self.name)
                except KlogError:
                    continue
                offsets = {one.partition: what.offset for one, what in found.items() if one.topic == self.topic}
                if not self.samples or self.samples[-1][1] != offsets:
                    # When it was read, at the latest: what the members say is compared by the time they said it.
                    self.samples.append((time.monotonic(), offsets))

    def member(self) -> MemberProcess:
        """A further member, which begins to join."""
        whose = {"bootstrap": self.cluster.bootstrap, "group": self.name, "topic": self.topic}
        self.members.append(MemberProcess(f"member-{len(self.members)}", {**whose, **self._settings}))
        return self.members[-1]

    def end(self) -> None:
        self._stop.set()
        self._watching.join()
        for one in self.members:
            one.kill()

    # --- what is asked and waited for -----------------------------------------------------------------------------

    @property
    def committed(self) -> dict[int, int]:
        return self.samples[-1][1] if self.samples else {}

    def is_settled(self, *members: MemberProcess) -> bool:
        """These, and nobody else, have all partitions among them, in one generation."""
        owned = [one.owned for one in members]
        shared_out = [partition for _, partitions in owned for partition in partitions]
        return len({generation for generation, _ in owned}) == 1 and sorted(shared_out) == sorted(self.partitions)

    def wait_settled(self, *members: MemberProcess) -> float:
        """Seconds it took."""
        return self.wait_until(lambda: self.is_settled(*members), f"settled among {[one.name for one in members]}")

    def wait_for_commits(self) -> float:
        """Until every partition has been committed further than it is now; the seconds."""
        before = self.committed
        return self.wait_until(
            lambda: all(self.committed.get(one, -1) > before.get(one, -1) for one in self.partitions), "commits go on"
        )

    def wait_until_read(self, done: Load) -> None:
        """Until what was produced is committed to its end."""
        ends = {partition: offsets[-1][1] + 1 for partition, offsets in done.acked.items() if offsets}
        self.wait_until(lambda: self.committed == ends, f"committed to the end, {ends}")

    def wait_until(self, condition: Callable[[], object], what: str) -> float:
        begun = time.monotonic()
        until(condition, lambda: f"{what}\n{self.story()}\n{self.cluster.logs()}", WAIT_S)
        return time.monotonic() - begun

    def story(self) -> str:
        """What the members last said, and what is committed."""
        lines = [f"committed: {self.committed}"]
        for one in self.members:
            lines.append(f"--- {one.name}, {'running' if one.runs else 'gone'}: owns {one.owned}")
            lines += [f"    {event}"[:200] for event in one.events[-5:]]
        return "\n".join(lines)

    def judge(self, done: Load) -> None:
        """AssertionError for a promise that was not kept: see `tests.cluster.group_judge`."""
        said = {one.name: list(one.events) for one in self.members}
        judge_owners(said)
        judge_commits(said.values(), self.samples)
        judge_reads(
            said.values(), {partition: [offset for _, offset in told] for partition, told in done.acked.items()}
        )


@contextmanager
def group_of(cluster: RunningCluster, topic: str, partitions: int, **settings: Any) -> Iterator[Group]:
    """A group that is watched; no process of it is left at the end."""
    group = Group(cluster, topic, partitions, **settings)
    try:
        yield group
    finally:
        group.end()
