"""A copied log dir carries the UUIDs of the one it was copied from; whose broker lives is displaced by nobody (R7)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from klog.coordination import brokers
from tests.broker_fixture import RunningBroker
from tests.server.asking import create, offsets, produce, values
from tests.server.test_start import start_refused
from tests.server.wire import bystander
from tests.zookeeper_fixture import session_of

MakeBroker = Callable[..., RunningBroker]


def test_r7_a_copy_of_a_live_brokers_log_dir_is_refused_and_one_that_has_hung_is_waited_for(
    make_broker: MakeBroker, tmp_path: Path, topic: str
) -> None:
    """It is not known whether one that hangs is dead; when it answers, it lives."""
    broker = make_broker().start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(5)])
    unfinished = shutil.ignore_patterns("*.tmp")  # of a live broker: renamed while they are copied
    shutil.copytree(broker.folder / "data", tmp_path / "copy" / "data", ignore=unfinished)
    copy = make_broker(1, folder=tmp_path / "copy")
    with bystander(broker):
        start_refused(copy, broker.bootstrap, "broker 1", "log dir")
    assert offsets(broker.bootstrap, topic) == (0, 5)
    assert not broker.logged("CRITICAL")

    broker.send(signal.SIGSTOP)
    try:
        ready = copy.start_in_background()
        copy.wait_for_log("WARNING", "server.registration", broker.bootstrap)
    finally:
        broker.send(signal.SIGCONT)
    assert copy.process is not None
    assert copy.process.wait(30) == 1, copy.log_text
    os.close(ready)
    assert "log dir" in copy.log_text
    produce(broker.bootstrap, topic, [values(1)])


def test_r7_a_dead_ones_copy_takes_its_entry_over(make_broker: MakeBroker, tmp_path: Path, topic: str) -> None:
    """Long before the session ends: nobody listens where it did. Who is displaced while it lives ends with an error."""
    broker = make_broker(zookeeper__session__timeout__ms="60000").start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(5)])
    broker.kill()
    shutil.copytree(broker.folder / "data", tmp_path / "copy" / "data")
    copy = make_broker(1, folder=tmp_path / "copy").start()
    assert offsets(copy.bootstrap, topic) == (0, 5)
    assert not copy.logged("WARNING", "server.registration")

    with session_of(copy.zookeeper) as session:
        held = brokers.find(session, 1)
        assert held is not None and copy.process is not None
        taken = brokers.register(session, brokers.Broker(1, "127.0.0.1", 1, held.broker.log_dirs))
        assert copy.process.wait(30) == 1, copy.log_text
        assert copy.logged("CRITICAL", "127.0.0.1:1", "broker 1")
        assert "Traceback" not in copy.log_text
        assert brokers.find(session, 1) == taken, "it has taken the other's entry with it"
