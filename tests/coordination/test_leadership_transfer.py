"""What leaders ask to have led by others, as it stands in ZooKeeper."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from klog.coordination import brokers, controller_election, leadership_transfer, paths
from klog.coordination.brokers import Registration
from klog.coordination.leadership_transfer import Handover
from klog.coordination.zookeeper import MULTI_BYTES_MAX, ZooKeeper
from klog.errors import BadVersion
from klog.names import TopicPartition

pytestmark = pytest.mark.usefixtures("made_cluster")

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
WITHIN_S = 20.0


def register(zk: ZooKeeper, broker_id: int = 1) -> Registration:
    return brokers.register(zk, brokers.Broker(broker_id, "127.0.0.1", 1, (f"dir-{broker_id}",)))


def test_what_is_asked_is_read_told_of_and_taken_away(zk: ZooKeeper) -> None:
    one, stirred = register(zk), threading.Event()
    assert leadership_transfer.asked(zk, lambda _: stirred.set()) == []
    leadership_transfer.ask(zk, one, {A: 3, B: 0})
    assert stirred.wait(WITHIN_S)
    stirred.clear()
    assert leadership_transfer.asked(zk, lambda _: stirred.set()) == [Handover(1, one.incarnation, {A: 3, B: 0})]
    leadership_transfer.ask(zk, one, {B: 1})
    assert stirred.wait(WITHIN_S)  # of one that is asked in place of another, too
    (found,) = leadership_transfer.asked(zk)
    assert found == Handover(1, one.incarnation, {B: 1})
    term = controller_election.elect(zk, 2)
    leadership_transfer.done(zk, found, [term.fence])
    leadership_transfer.done(zk, found, [term.fence])
    assert leadership_transfer.asked(zk) == []


def test_z1_neither_an_earlier_incarnation_asks_nor_an_earlier_controller_grants(zk: ZooKeeper) -> None:
    one, term = register(zk), controller_election.elect(zk, 2)
    leadership_transfer.ask(zk, one, {A: 0})
    (found,) = leadership_transfer.asked(zk)
    with pytest.raises(BadVersion):
        leadership_transfer.done(zk, found, [replace(term, epoch_version=term.epoch_version - 1).fence])
    assert leadership_transfer.asked(zk) == [found]
    with pytest.raises(BadVersion):
        leadership_transfer.ask(zk, replace(one, fence_version=one.fence_version - 1), {B: 0})
    assert leadership_transfer.asked(zk) == [found]


def test_z3_what_does_not_fit_into_one_entry_is_left_out(zk: ZooKeeper) -> None:
    leadership_transfer.ask(zk, register(zk), {TopicPartition("t" * 249, number): 1 for number in range(3000)})
    assert len(zk.get(paths.handover(1)).data) < MULTI_BYTES_MAX
    (found,) = leadership_transfer.asked(zk)
    assert 1000 < len(found.epochs) < 3000


def test_nonsense_is_left_out_and_a_folder_that_is_missing_is_made(zk: ZooKeeper) -> None:
    zk.delete(paths.HANDOVERS)
    assert leadership_transfer.asked(zk) == []
    zk.create(paths.handover(7), b'{"incarnation":"x"')
    zk.create(f"{paths.HANDOVERS}/x", b"{}")
    one = register(zk)
    leadership_transfer.ask(zk, one, {A: 0})
    assert [found.broker_id for found in leadership_transfer.asked(zk)] == [1]
