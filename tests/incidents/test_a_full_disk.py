"""A broker's disk fills up: producers are refused and nothing is lost; room is made by retention, and they go on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster_fixture import RunningCluster
from tests.faults.cluster import can_mount
from tests.incidents.operator import Operator

DISK_BYTES = 48 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    missing = can_mount()
    folder = tmp_path / "small"
    folder.mkdir()
    ran = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if missing or ran.returncode:
        pytest.skip(missing or "a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.long("a document that is walked")
def test_a_full_disk(make_cluster: Callable[..., RunningCluster], small_disk: Path, topic: str) -> None:
    cluster = make_cluster(
        1, log__retention__check__interval__ms="500", log__segment__bytes="1048576", log__roll__hours="1"
    )
    cluster.brokers[1].extra_arguments = ["--dir", str(small_disk)]
    cluster.start()
    operator = Operator(cluster)
    cluster.create(topic, factor=1)
    operator.text("produce", topic, input="first\n")
    chunk = "".join(f"{number:0100}\n" for number in range(10_000))
    for _ in range(100):
        ran = operator.run("produce", topic, "--give-up-after", "1s", input=chunk)
        # The chunk that fills the disk may run out of its second before the broker has said why: the next one hears it.
        if ran.code and any(word in ran.stderr.lower() for word in ("disk", "room", "storage")):
            break
    else:
        pytest.fail(f"the disk has room for everything, or nobody says that it has not: {ran}")

    cause = operator.cause("broker", 1, until=lambda row: "full" in row["what"])
    assert cause["do"]
    assert operator.runbook("klog status broker 1").code == 1
    findings = operator.runbook("klog status")
    assert findings.code != 0, findings

    less = {"orders": topic, "50000000": 5_000_000}
    operator.runbook("klog topic config orders retention.bytes=50000000", **less)
    cluster.wait_until(
        lambda: operator.run("produce", topic, "--give-up-after", "1s", input="again\n").code == 0, "room is made"
    )
    assert operator.values(topic)[-1] == "again"
    operator.runbook("klog undo ACT", ACT=operator.act(subject=f"topic {topic}")["act"])  # not the messages
    settings = {row["name"]: row["value"] for row in operator.rows("topic", "config", topic)}
    assert settings["retention.bytes"] != "5000000"
