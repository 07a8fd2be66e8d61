"""An embedded ZooKeeper of the test's own, in `directory`.

`start`   `embedded.start` there, with the options given; returns when it serves. What runs there in the end is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from tests.zookeeper_fixture import klog_home

Start = Callable[..., ZooKeeperServer]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "zk"


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    def started(**options: object) -> ZooKeeperServer:
        server = embedded.start(directory, **{"cache": klog_home() / "cache", **options})  # type: ignore[arg-type]
        server.await_serving()
        return server

    yield started
    left = embedded.find(directory)
    if left is not None:
        left.stop()
