"""One controller at a time, and nothing a deposed one writes counts (rule Z1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from klog.coordination import controller_election, paths
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.zookeeper import Create, Delete, Operation, SetData, ZooKeeper
from klog.errors import BadVersion, NodeExists, NoNode, ZooKeeperError
from tests.coordination.conftest import expire

Connect = Callable[..., ZooKeeper]


def test_the_first_is_elected_the_second_is_told(zk: ZooKeeper, connect: Connect) -> None:
    assert controller_election.current(zk) is None
    first = controller_election.elect(zk, 1)
    assert (first.broker_id, first.epoch, first.session) == (1, 1, zk.session_id)
    other = connect()
    assert controller_election.elect(other, 2) == first
    assert controller_election.elect(zk, 1) == first  # asking again changes nothing
    assert controller_election.current(other) == first
    assert zk.get(paths.CONTROLLER_EPOCH).data == b"1"
    assert zk.get(paths.CONTROLLER).data == (b'{"version":1,"brokerid":1,"timestamp":"%d"}' % first.timestamp_ms)


def test_a_deposed_controller_can_write_nothing(zk: ZooKeeper, connect: Connect) -> None:
    zk.create("/state", b"")
    old_session = connect()
    old = controller_election.elect(old_session, 1)
    gone = threading.Event()
    controller_election.current(zk, lambda _: gone.set())
    expire(old_session)
    assert gone.wait(20)
    new = controller_election.elect(zk, 2)
    assert (new.epoch, new.session) == (2, zk.session_id)
    for write in (SetData("/state", b"old"), Create("/made"), Delete(paths.CONTROLLER)):
        with pytest.raises(BadVersion, match=paths.CONTROLLER_EPOCH):
            old_session.multi([old.fence, write])
    with pytest.raises((BadVersion, NoNode)):
        controller_election.resign(old_session, old)
    assert controller_election.current(zk) == new
    zk.multi([new.fence, SetData("/state", b"new")])
    assert zk.get("/state").data == b"new"


def test_a_dead_controller_is_replaced_once(zk: ZooKeeper, connect: Connect) -> None:
    """Whoever sees it dead takes the office in one step; whoever comes late finds the new one, not the old."""
    dead = controller_election.elect(connect(), 1)
    new = controller_election.elect(zk, 2, dead)
    assert (new.broker_id, new.epoch, new.session) == (2, dead.epoch + 1, zk.session_id)
    late = connect()
    assert controller_election.elect(late, 3, dead) == new
    assert controller_election.current(late) == new
    with pytest.raises(BadVersion):
        late.multi([dead.fence, SetData(paths.CONTROLLER_EPOCH, b"9")])


def test_what_z1_is_about(zk: ZooKeeper, connect: Connect) -> None:
    """The version of `/controller` is 0 again each time: a delete by version would remove the next one."""
    first = controller_election.elect(zk, 1)
    controller_election.resign(zk, first)
    second = controller_election.elect(connect(), 2)
    assert zk.get(paths.CONTROLLER).stat.version == 0
    with pytest.raises((BadVersion, NoNode)):
        controller_election.resign(zk, first)
    assert controller_election.current(zk) == second


def test_a_race_between_many(zk: ZooKeeper, connect: Connect) -> None:
    """Rounds of elections by eight sessions at once: in each, one term, and the epochs never repeat."""
    sessions = [zk, *(connect() for _ in range(7))]
    epochs = []
    terms: list[ControllerTerm] = []
    barrier = threading.Barrier(len(sessions))

    def stand(number: int, session: ZooKeeper) -> None:
        barrier.wait(20)
        terms.append(controller_election.elect(session, number))

    for _ in range(5):
        terms.clear()
        threads = [threading.Thread(target=stand, args=one) for one in enumerate(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(terms) == len(sessions)
        assert len({(term.broker_id, term.session, term.epoch) for term in terms}) == 1
        epochs.append(terms[0].epoch)
        winner = next(session for session in sessions if session.session_id == terms[0].session)
        winner.multi([terms[0].fence])
        controller_election.resign(winner, terms[0])
    assert epochs == [1, 2, 3, 4, 5]


def test_an_epoch_is_never_used_twice(zk: ZooKeeper, connect: Connect) -> None:
    """Between a candidate's reading of the epoch and its multi, another was elected and resigned: `/controller` is free
    again, but the epoch that was read is used up."""
    slow, other = connect(), connect()
    send = slow.multi

    def late(operations: Sequence[Operation]) -> object:
        slow.multi = send  # type: ignore[method-assign]
        controller_election.resign(other, controller_election.elect(other, 2))
        return send(operations)

    slow.multi = late  # type: ignore[method-assign,assignment]
    term = controller_election.elect(slow, 1)
    assert (term.broker_id, term.epoch) == (1, 2)
    assert zk.get(paths.CONTROLLER_EPOCH).data == b"2"
    slow.multi([term.fence])


def test_two_controllers_who_both_believe(zk: ZooKeeper, connect: Connect) -> None:
    """Both write the same counter as fast as they can, one resigns in the middle: no write of a term follows a write
    of a later one."""
    zk.create("/counter", b"")
    other = connect()
    written: list[int] = []
    lock = threading.Lock()

    def reign(session: ZooKeeper, broker_id: int, terms: int) -> None:
        while terms:
            term = controller_election.elect(session, broker_id)
            if term.session != session.session_id:
                continue
            terms -= 1
            for number in range(10):
                if number == 5:
                    controller_election.resign(session, term)
                try:
                    with lock:  # so that the order written down is the order written
                        session.multi([term.fence, SetData("/counter", str(term.epoch).encode())])
                        written.append(term.epoch)
                except BadVersion:
                    break

    threads = [threading.Thread(target=reign, args=(zk, 1, 6)), threading.Thread(target=reign, args=(other, 2, 6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert written == sorted(written)
    assert set(written) == set(range(1, 13))


def test_an_office_of_another_tool_is_respected(zk: ZooKeeper) -> None:
    """0.8 raises the epoch after it has made the node, so there may be an office without an epoch for a moment."""
    zk.create(paths.CONTROLLER, b'{"version":1,"brokerid":7,"timestamp":"1"}')
    assert controller_election.current(zk) is None
    term = controller_election.elect(zk, 1)
    assert (term.broker_id, term.session) == (7, 0)


def test_what_is_no_entry_is_named(zk: ZooKeeper) -> None:
    zk.create(paths.CONTROLLER_EPOCH, b"many")
    with pytest.raises(ZooKeeperError, match="/controller_epoch holds 'many'"):
        controller_election.elect(zk, 1)
    with pytest.raises(NodeExists):
        zk.create(paths.CONTROLLER_EPOCH)
