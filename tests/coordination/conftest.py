"""What a session with the real ZooKeeper says of itself, and how one ends behind its owner's back."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from klog.coordination import cluster, controller_election
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import Check, ZooKeeper
from tests.coordination.embedded_fixture import directory, start

__all__ = ["directory", "start"]


@pytest.fixture
def registry(zk: ZooKeeper) -> ZooKeeper:
    """One session on a chroot with the folders of a cluster."""
    cluster.ensure_folders(zk)
    return zk


@pytest.fixture
def made_cluster(zk: ZooKeeper) -> str:
    """Makes a cluster in the chroot of `zk`; its id."""
    return cluster.ensure_cluster(zk)


@pytest.fixture
def fence(zk: ZooKeeper, made_cluster: str) -> list[Check]:
    """Of broker 1 as the controller of a cluster."""
    return [controller_election.elect(zk, 1).fence]


class States:
    """Collects a session's states and waits for one."""

    def __init__(self) -> None:
        self.seen: list[SessionState] = []
        self._changed = threading.Condition()

    def __call__(self, state: SessionState) -> None:
        with self._changed:
            self.seen.append(state)
            self._changed.notify_all()

    def wait_for(self, *states: SessionState, timeout_s: float = 20.0) -> None:
        """Until exactly these have been seen, in order."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self.seen[: len(states)] == list(states), timeout_s)
        assert reached, f"expected {states}, saw {self.seen}"

    def wait_for_last(self, *states: SessionState, timeout_s: float = 20.0) -> None:
        """Until the last that have been seen are these: a busy machine may lose and find a connection before them."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self.seen[-len(states) :] == list(states), timeout_s)
        assert reached, f"expected {states} at the end, saw {self.seen}"


@pytest.fixture
def states() -> States:
    return States()


def expire(session: ZooKeeper) -> None:
    """End a session behind its owner's back: another connection takes the session over and closes it."""
    identity = session._client.client_id
    assert identity is not None
    # Without the chroot, for which kazoo asks the server first: the owner, who connects again, may end that connection.
    other = KazooClient(hosts=session.address.servers_text, client_id=identity, timeout=6.0)
    other.start()
    other.stop()
    other.close()
