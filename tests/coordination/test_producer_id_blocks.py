from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from klog.coordination import paths, producer_ids
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import ZooKeeperError


def test_blocks_follow_one_another_in_kafkas_form(zk: ZooKeeper) -> None:
    assert producer_ids.claim_block(zk, 1) == range(1000)
    assert producer_ids.claim_block(zk, 2) == range(1000, 2000)
    assert zk.get(paths.PRODUCER_IDS).data == b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'


def test_no_id_is_given_twice(connect: Callable[..., ZooKeeper]) -> None:
    given: list[range] = []

    def claim(session: ZooKeeper) -> None:
        for _ in range(10):
            given.append(producer_ids.claim_block(session, 1))

    threads = [threading.Thread(target=claim, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(block.start for block in given) == list(range(0, 40_000, 1000))


def test_the_end_of_the_ids(zk: ZooKeeper) -> None:
    zk.create(paths.PRODUCER_IDS, b'{"version":1,"broker":1,"block_start":"0","block_end":"%d"}' % (2**63 - 500))
    with pytest.raises(ZooKeeperError, match="producer ids"):
        producer_ids.claim_block(zk, 1)
