"""A broker on what another klog has left: folders that it did not know are made, another layout is refused."""

from __future__ import annotations

from pathlib import Path

from klog.coordination import paths
from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import unique
from tests.server.asking import create, offsets
from tests.zookeeper_fixture import session_of

LATER = (paths.TOPIC_IDS, paths.HANDOVERS, paths.ACTS)


def test_folders_that_are_missing_are_made(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with RunningBroker(tmp_path, f"{zookeeper.address}/{unique('earlier')}").running() as broker:
        create(broker.bootstrap, "before")
        assert broker.stop() == 0
        with session_of(broker.zookeeper, create_chroot=True) as zk:
            for folder in LATER:
                for child in zk.children(folder) if zk.exists(folder) is not None else []:
                    zk.delete(f"{folder}/{child}")
                if zk.exists(folder) is not None:
                    zk.delete(folder)
        broker.start()
        create(broker.bootstrap, "behind")
        assert offsets(broker.bootstrap, "before") and offsets(broker.bootstrap, "behind")


def test_another_layout_is_refused_with_its_version(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with RunningBroker(tmp_path, f"{zookeeper.address}/{unique('later')}").running() as broker:
        assert broker.stop() == 0
        properties = tmp_path / "data" / "meta.properties"
        whole = properties.read_text()
        for where in ("log dir", "ZooKeeper"):
            if where == "log dir":
                properties.write_text(whole.replace("version=0", "version=7"))
            else:
                properties.write_text(whole)
                with session_of(broker.zookeeper, create_chroot=True) as zk:
                    zk.set(paths.CLUSTER_ID, zk.get(paths.CLUSTER_ID).data.replace(b'"1"', b'"7"'))
            kept = properties.read_bytes()
            broker.start(expect_ready=False)
            assert broker.process is not None and broker.process.wait(20) == 1
            said = broker.log_text.splitlines()[-3:]
            assert any("version 7" in one and where in one for one in said) and "Traceback" not in broker.log_text
            assert properties.read_bytes() == kept
