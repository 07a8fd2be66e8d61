"""How a broker ends: in order, and with an exit code that says so."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable

from klog.coordination import brokers
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import RunningBroker

MakeBroker = Callable[..., RunningBroker]


def test_told_again_and_again(make_broker: MakeBroker) -> None:
    """A SIGTERM in the last moment of a clean stop does not make a death of it: supervisors read the exit code."""
    broker = make_broker()
    broker.start()
    assert broker.process is not None
    code = None
    while code is None:
        broker.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = broker.process.wait(0.0005)
    assert code == 0, broker.log_text
    assert " stopped" in broker.log_text, broker.log_text


def test_its_registration_ends_before_its_connections(make_broker: MakeBroker) -> None:
    """Another broker takes a controller whose connections end, and are refused, for dead; then it says so."""
    broker = make_broker().start()
    host, _, port = broker.bootstrap.rpartition(":")
    with ZooKeeper(broker.zookeeper) as session, socket.create_connection((host, int(port))) as connection:
        session.start()
        assert brokers.find(session, 1) is not None
        broker.send(signal.SIGTERM)
        assert connection.recv(1) == b""
        assert brokers.find(session, 1) is None
    assert broker.stop() == 0
