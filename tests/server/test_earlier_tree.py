"""A broker on the ZooKeeper of an earlier klog, which did not know all of klog's folders."""

from __future__ import annotations

from pathlib import Path

from klog.coordination import paths
from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import unique, zookeeper_of
from tests.server.asking import create, offsets

LATER = (paths.TOPIC_IDS, paths.HANDOVERS, paths.ACTS)


def test_folders_that_are_missing_are_made(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path, f"{zookeeper.address}/{unique('earlier')}")
    try:
        broker.start()
        create(broker.bootstrap, "before")
        assert broker.stop() == 0
        with zookeeper_of(broker) as zk:
            for folder in LATER:
                for child in zk.children(folder) if zk.exists(folder) is not None else []:
                    zk.delete(f"{folder}/{child}")
                if zk.exists(folder) is not None:
                    zk.delete(folder)
        broker.start()
        create(broker.bootstrap, "behind")
        assert offsets(broker.bootstrap, "before") and offsets(broker.bootstrap, "behind")
    finally:
        broker.end()
