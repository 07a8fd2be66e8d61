"""``klog zk`` with a chroot inside, or above, a cluster's nodes: what is not shown or written goes by the true path."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from klog.coordination import paths
from klog.coordination.acts import list_ids, new_id
from klog.coordination.connect_string import ConnectString
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog


@pytest.fixture
def session(broker: RunningBroker) -> Iterator[ZooKeeper]:
    with ZooKeeper(broker.zookeeper) as found:
        found.start()
        yield found


def ways(broker: RunningBroker, path: str) -> Iterator[tuple[str, str]]:
    """Each chroot from which a node can be named, with its path from there."""
    at = ConnectString.parse(broker.zookeeper)
    parts = f"{at.chroot}{path}".split("/")
    for number in range(1, len(parts) + 1):
        yield f"{at.servers_text}{'/'.join(parts[:number])}", "/" + "/".join(parts[number:])


def zk(*words: object) -> Ran:
    return klog("zk", *words, "-o", "json")


def test_the_secret_is_shown_from_nowhere(broker: RunningBroker, session: ZooKeeper) -> None:
    secret = json.loads(session.get(paths.SECRET).data)["secret"]
    for zookeeper, path in ways(broker, paths.SECRET):
        ran = zk("get", path, "-z", zookeeper)
        assert ran.code == 0 and secret not in ran.stdout
        assert secret not in zk("tree", path, "-z", zookeeper).stdout


def test_acts_and_the_secret_are_written_from_nowhere(broker: RunningBroker, session: ZooKeeper) -> None:
    before, secret = list_ids(session), session.get(paths.SECRET)
    forged = json.dumps({"version": 1, "time": 1, "kind": "topic-delete", "client": "x", "host": "h"})
    for zookeeper, path in ways(broker, paths.act(new_id(1))):
        assert zk("create", path, forged, "-y", "-z", zookeeper).code == 1
    for zookeeper, path in ways(broker, paths.SECRET):
        ran = zk("set", path, "x", "--version", secret.stat.version, "-y", "-z", zookeeper)
        assert ran.error["code"] == "REFUSED"
        assert zk("rm", path, "--version", secret.stat.version, "-y", "-z", zookeeper).error["code"] == "REFUSED"
    assert list_ids(session) == before and session.get(paths.SECRET).data == secret.data
