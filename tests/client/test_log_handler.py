"""`klog.LogHandler`: a program's log in a topic, whatever the brokers do."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import klog
from klog.errors import InvalidConfig
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, read


@pytest.fixture
def logger(topic: str) -> Iterator[logging.Logger]:
    """One that hands its records to nobody else."""
    found = logging.getLogger(f"program.{topic}")
    found.propagate, found.level = False, logging.DEBUG
    yield found
    found.handlers.clear()


def lines(broker: RunningBroker, topic: str) -> list[str]:
    return read(broker.bootstrap, topic, format="%k|%s\\n", until_end=True, last=1000)[0].decode().splitlines()


def test_records_are_messages(broker: RunningBroker, topic: str, logger: logging.Logger) -> None:
    make_topic(broker.bootstrap, topic)
    handler = klog.LogHandler(topic, bootstrap_servers=broker.bootstrap, key="logger", level="INFO")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.debug("not this")
    logger.info("n %d", 1)
    logger.error("ö")
    klog_logger = logging.getLogger("klog.of.itself")
    klog_logger.addHandler(handler)
    klog_logger.error("not this either")
    klog_logger.removeHandler(handler)
    handler.flush()
    assert lines(broker, topic) == [f"{logger.name}|INFO n 1", f"{logger.name}|ERROR ö"]
    handler.close()
    handler.close()
    assert handler.dropped == 0


def test_brokers_that_are_away_hold_up_nothing(
    topic: str, dead_address: str, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = klog.LogHandler(topic, bootstrap_servers=dead_address, buffer_messages=10, close_s=0.2)
    logger.addHandler(handler)
    began = time.monotonic()
    for number in range(100):
        logger.warning("record %d", number)
    assert handler.dropped == 90
    handler.flush()
    handler.close()
    assert handler.dropped == 100
    assert time.monotonic() - began < 60, "a message alone has 300 s"
    told = capsys.readouterr().err.splitlines()
    assert "dropped" in told[0] and topic in told[0] and "99" in told[-1]


def test_the_end_of_a_program_sends_what_is_left(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    program = (
        "import logging, klog;"
        f"logging.getLogger().addHandler(klog.LogHandler({topic!r}, zookeeper={broker.zookeeper!r}));"
        "[logging.warning('line %d', n) for n in range(50)];"
        "logging.warning('half a \\udcff')"  # here and not above: a report of a test cannot hold it
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert lines(broker, topic) == [*(f"|line {number}" for number in range(50)), "|half a \\udcff"]


def test_what_is_refused_is_counted(broker: RunningBroker, topic: str, logger: logging.Logger) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="1000")
    with pytest.raises(InvalidConfig):
        klog.LogHandler(topic, bootstrap_servers=broker.bootstrap, partitioner=lambda key, count: 0)
    handler = klog.LogHandler(topic, bootstrap_servers=broker.bootstrap)
    logger.addHandler(handler)
    logger.error("x" * 5000)
    handler.flush()
    logger.error("short")
    handler.close()
    assert handler.dropped == 1
    assert lines(broker, topic) == ["|short"]
