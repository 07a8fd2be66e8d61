"""``klog zk find|tree|set|create|rm``: raw znodes, found and written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator

from klog.coordination import paths
from klog.coordination.acts import list_ids, new_id
from klog.coordination.connect_string import ConnectString
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, act_rows, klog
from tests.rows import each


def zk(broker: RunningBroker, *words: object, input: str = "") -> Ran:
    return klog("zk", *words, "-o", "json", "-z", broker.zookeeper, input=input)


def test_nodes_are_found_by_name_and_by_data(broker: RunningBroker, registry: ZooKeeper, topic: str) -> None:
    root = f"/x-{topic}"
    registry.create(f"{root}/a/one", b"red wine", parents=True)
    registry.create(f"{root}/b/one", b"\xff\x00 wine", parents=True)
    registry.create(f"{root}/b/two", b"beer")
    assert [row["path"] for row in zk(broker, "find", root, "on?").rows] == [f"{root}/a/one", f"{root}/b/one"]
    assert zk(broker, "find", root, "three").code == 1
    lines = klog("zk", "tree", root, "-o", "wide", "--no-header", "-z", broker.zookeeper).stdout.splitlines()
    assert [line.split()[0] for line in lines if "wine" in line or "beer" in line] == [f"{root}/a/one", f"{root}/b/two"]
    assert [row["data"] for row in zk(broker, "ls", f"{root}/b").rows] == ["/wAgd2luZQ==", "beer"]
    secret = registry.get(paths.SECRET).data.decode()
    assert json.loads(secret)["secret"] not in zk(broker, "tree", "/klog").stdout


def test_a_node_is_written_at_the_version_seen_and_each_write_is_taken_back(
    broker: RunningBroker, registry: ZooKeeper, topic: str
) -> None:
    path = f"/x-{topic}"

    def undo_last() -> Ran:
        rows = act_rows(broker.zookeeper)
        act = [row["act"] for row in rows if row["subject"] == f"znode {path}"][-1]
        return klog("undo", act, "-y", "-o", "json", "-B", broker.bootstrap)

    assert zk(broker, "create", path, "one").code == 2  # asks, and stdin is not a terminal
    assert zk(broker, "create", path, "one", "--dry-run").code == 0
    assert registry.find(path) is None
    assert zk(broker, "create", path, "one", "-y").code == 0
    assert zk(broker, "create", path, "one", "-y").error["code"] == "REFUSED"
    assert zk(broker, "create", f"{path}/a/b", "-y").error["code"] == "REFUSED"

    assert zk(broker, "set", path, "-", "--version", 0, "-y", input="two").code == 0
    assert zk(broker, "set", path, "three", "--version", 0, "-y").error["code"] == "REFUSED"
    assert registry.get(path).data == b"two"
    assert undo_last().code == 0
    assert registry.get(path).data == b"one"

    registry.create(f"{path}/child")
    version = registry.get(path).stat.version
    assert zk(broker, "rm", path, "--version", version, "-y").error["code"] == "REFUSED"
    registry.delete(f"{path}/child")
    assert zk(broker, "rm", path, "--version", version, "-y").code == 0
    assert registry.find(path) is None
    assert undo_last().code == 0
    assert registry.get(path).data == b"one"
    assert undo_last().code == 0  # of the undo: the node goes again
    assert registry.find(path) is None
    registry.create(path, b"by another")
    refused = undo_last()
    assert refused.code == 1 and path in refused.error["message"]


@each("path", [paths.SECRET, paths.ACTS, f"{paths.ACTS}/{'0' * 12}", "/"])
def test_the_secret_and_the_record_are_not_written(broker: RunningBroker, path: str) -> None:
    for words in (["set", path, "x", "--version", 0], ["rm", path, "--version", 0]):
        ran = zk(broker, *words, "-y")
        assert ran.code == 1 and ran.error["code"] == "REFUSED"


# --- with a chroot inside, or above, the cluster's nodes: it goes by the true path ---


def ways(broker: RunningBroker, path: str) -> Iterator[tuple[str, str]]:
    """Each chroot from which a node can be named, with its path from there."""
    at = ConnectString.parse(broker.zookeeper)
    parts = f"{at.chroot}{path}".split("/")
    for number in range(1, len(parts) + 1):
        yield f"{at.servers_text}{'/'.join(parts[:number])}", "/" + "/".join(parts[number:])


def test_the_secret_is_shown_from_nowhere(broker: RunningBroker, registry: ZooKeeper) -> None:
    secret = json.loads(registry.get(paths.SECRET).data)["secret"]
    for zookeeper, path in ways(broker, paths.SECRET):
        ran = klog("zk", "get", path, "-z", zookeeper, "-o", "json")
        assert ran.code == 0 and secret not in ran.stdout
        assert secret not in klog("zk", "tree", path, "-z", zookeeper, "-o", "json").stdout


def test_acts_and_the_secret_are_written_from_nowhere(broker: RunningBroker, registry: ZooKeeper) -> None:
    before, secret = list_ids(registry), registry.get(paths.SECRET)
    forged = json.dumps({"version": 1, "time": 1, "kind": "topic-delete", "client": "x", "host": "h"})
    for zookeeper, path in ways(broker, paths.act(new_id(1))):
        assert klog("zk", "create", path, forged, "-y", "-z", zookeeper, "-o", "json").code == 1
    for zookeeper, path in ways(broker, paths.SECRET):
        for words in (["set", path, "x"], ["rm", path]):
            ran = klog("zk", *words, "--version", secret.stat.version, "-y", "-z", zookeeper, "-o", "json")
            assert ran.error["code"] == "REFUSED"
    assert list_ids(registry) == before and registry.get(paths.SECRET).data == secret.data
