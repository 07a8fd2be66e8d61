"""``klog zk find|grep|diff|watch|set|create|rm``: raw znodes, found, compared, watched and written by hand."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from klog.coordination import paths
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, act_rows, klog
from tests.rows import each


@pytest.fixture
def session(broker: RunningBroker) -> Iterator[ZooKeeper]:
    with ZooKeeper(broker.zookeeper) as found:
        found.start()
        yield found


def zk(broker: RunningBroker, *words: object, input: str = "") -> Ran:
    return klog("zk", *words, "-o", "json", "-z", broker.zookeeper, input=input)


def test_nodes_are_found_by_name_and_by_data(broker: RunningBroker, session: ZooKeeper, topic: str) -> None:
    root = f"/x-{topic}"
    session.create(f"{root}/a/one", b"red wine", parents=True)
    session.create(f"{root}/b/one", b"\xff\x00 wine", parents=True)
    session.create(f"{root}/b/two", b"beer")
    assert [row["path"] for row in zk(broker, "find", root, "on?").rows] == [f"{root}/a/one", f"{root}/b/one"]
    assert [row["path"] for row in zk(broker, "grep", root, "wine$").rows] == [f"{root}/a/one", f"{root}/b/one"]
    assert zk(broker, "find", root, "three").code == zk(broker, "grep", root, "water").code == 1
    assert zk(broker, "grep", root, "(").code == 2
    secret = session.get(paths.SECRET).data.decode()
    assert zk(broker, "grep", "/klog", json.loads(secret)["secret"]).rows == []

    differing = zk(broker, "diff", f"{root}/a", f"{root}/b")
    assert differing.code == 1
    assert [(row["path"], row["state"]) for row in differing.rows] == [
        (f"{root}/a/one", "differs"),
        (f"{root}/a/two", "only there"),
    ]
    same = zk(broker, "diff", root, "--to-zookeeper", broker.zookeeper)
    assert (same.code, same.rows) == (0, [])
    assert zk(broker, "diff", root).code == 2


def test_a_node_is_written_at_the_version_seen_and_each_write_is_taken_back(
    broker: RunningBroker, session: ZooKeeper, topic: str
) -> None:
    path = f"/x-{topic}"

    def undo_last() -> Ran:
        rows = act_rows(broker.zookeeper)
        act = [row["act"] for row in rows if row["subject"] == f"znode {path}"][-1]
        return klog("undo", act, "-y", "-o", "json", "-B", broker.bootstrap)

    assert zk(broker, "create", path, "one").code == 2  # asks, and stdin is not a terminal
    assert zk(broker, "create", path, "one", "--dry-run").code == 0
    assert session.find(path) is None
    assert zk(broker, "create", path, "one", "-y").code == 0
    assert zk(broker, "create", path, "one", "-y").error["code"] == "REFUSED"
    assert zk(broker, "create", f"{path}/a/b", "-y").error["code"] == "REFUSED"

    assert zk(broker, "set", path, "-", "--version", 0, "-y", input="two").code == 0
    assert zk(broker, "set", path, "three", "--version", 0, "-y").error["code"] == "REFUSED"
    assert session.get(path).data == b"two"
    assert undo_last().code == 0
    assert session.get(path).data == b"one"

    session.create(f"{path}/child")
    version = session.get(path).stat.version
    assert zk(broker, "rm", path, "--version", version, "-y").error["code"] == "REFUSED"
    session.delete(f"{path}/child")
    assert zk(broker, "rm", path, "--version", version, "-y").code == 0
    assert session.find(path) is None
    assert undo_last().code == 0
    assert session.get(path).data == b"one"
    assert undo_last().code == 0  # of the undo: the node goes again
    assert session.find(path) is None
    session.create(path, b"by another")
    refused = undo_last()
    assert refused.code == 1 and path in refused.error["message"]


@each("path", [paths.SECRET, paths.ACTS, f"{paths.ACTS}/{'0' * 12}", "/"])
def test_the_secret_and_the_record_are_not_written(broker: RunningBroker, path: str) -> None:
    for words in (["set", path, "x", "--version", 0], ["rm", path, "--version", 0]):
        ran = zk(broker, *words, "-y")
        assert ran.code == 1 and ran.error["code"] == "REFUSED"


def test_watch_shows_what_happens(broker: RunningBroker, session: ZooKeeper, topic: str) -> None:
    path = f"/x-{topic}"
    session.create(path, b"0")
    command = [sys.executable, "-m", "klog", "zk", "watch", path, "-z", broker.zookeeper, "-v"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as watching:
        assert watching.stdout is not None
        seen: list[tuple[str, str]] = []
        number = 0
        # The first change may come before the watch: one is made until one is seen.
        while not seen:
            number += 1
            session.set(path, str(number).encode())
            if select.select([watching.stdout], [], [], 0.2)[0]:
                row = json.loads(watching.stdout.readline())
                seen.append((row["path"], row["what"]))
        child = f"{path}/child"
        session.create(child, b"hello")
        while (row := json.loads(watching.stdout.readline()))["path"] != child:
            assert row["what"] == "changed"
        assert (row["what"], row["data"]) == ("created", "hello")
        session.delete(child)
        row = json.loads(watching.stdout.readline())
        assert (row["path"], row["what"], row["data"]) == (child, "deleted", None)
        watching.send_signal(signal.SIGINT)
    assert watching.returncode in (0, 130)
    assert [one for one in seen if one[1] != "changed"] == []
