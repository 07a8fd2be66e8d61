"""What a broker refuses to start with, and says; and what it starts with all the same."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, metadata, offsets, produce, values
from tests.server.wire import bystander
from tests.zookeeper_proxy import ZooKeeperProxy

MakeBroker = Callable[..., RunningBroker]
REFUSED = 1


def start_refused(broker: RunningBroker, *said: str, code: int = REFUSED, within_s: float = 20.0) -> None:
    """It ends by itself, with this code, and each of these words on stderr; no traceback."""
    began = time.monotonic()
    log_before = len(broker.log_text)
    broker.start(expect_ready=False)
    assert broker.process is not None
    assert broker.process.wait(within_s) == code, broker.log_text
    assert time.monotonic() - began < within_s
    text = broker.log_text[log_before:]
    for words in said:
        assert words in text, text
    assert "Traceback" not in text, text


def unwritable_folder(tmp_path: Path) -> Path:
    """A folder in which nothing can be made: by its mode, or for root in a file system of the kernel's."""
    if os.geteuid() == 0:
        return Path("/proc/klog-data")
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    return folder / "data"


# --- The port ---


def test_a_port_in_use(make_broker: MakeBroker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = make_broker()
        broker.listen = f"127.0.0.1:{taken.getsockname()[1]}"
        start_refused(broker, broker.listen, "in use", "--listen")
    broker.start()
    assert offsets_of_new_topic(broker) == (0, 1)


def offsets_of_new_topic(broker: RunningBroker) -> tuple[int, int]:
    name = f"t-{secrets.token_hex(6)}"
    create(broker.bootstrap, name)
    produce(broker.bootstrap, name, [values(1)])
    return offsets(broker.bootstrap, name)


def test_an_address_of_another_machine(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.listen = "192.0.2.1:0"
    start_refused(broker, "192.0.2.1")


# --- The log dirs ---


def test_a_log_dir_that_cannot_be_written(make_broker: MakeBroker, tmp_path: Path) -> None:
    folder = unwritable_folder(tmp_path)
    broker = make_broker()
    broker.extra_arguments = ["--dir", str(folder)]
    start_refused(broker, str(folder))


def test_beside_a_log_dir_that_cannot_be_written_the_others_go_on(
    make_broker: MakeBroker, tmp_path: Path, topic: str
) -> None:
    folder = unwritable_folder(tmp_path)
    broker = make_broker()
    broker.extra_arguments = ["--dir", f"{folder},{tmp_path / 'good'}"]
    broker.start()
    assert broker.logged(str(folder), "offline")
    create(broker.bootstrap, topic, 3)
    for number in range(3):
        produce(broker.bootstrap, topic, [values(1)], partition=number)
    found = ask(broker.bootstrap, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    assert {one.log_dir: error(one) for one in found} == {str(folder): 56, str(tmp_path / "good"): 0}


def test_a_log_dir_of_another_broker(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker().start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(5)])
    assert broker.stop() == 0
    start_refused(make_broker(2, folder=broker.folder), "broker 1", "broker 2")
    broker.start()
    assert offsets(broker.bootstrap, topic) == (0, 5)


# --- ZooKeeper ---


def test_no_zookeeper_there(make_broker: MakeBroker) -> None:
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else gets the port meanwhile
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        broker = make_broker(chroot=f"{address}/klog", zookeeper__connection__timeout__ms="2000")
        start_refused(broker, address)


def test_a_broker_where_zookeeper_should_be(make_broker: MakeBroker, tmp_path: Path) -> None:
    first = make_broker().start()
    with bystander(first):
        wrong = make_broker(
            chroot=f"{first.bootstrap}/klog", folder=tmp_path / "wrong", zookeeper__connection__timeout__ms="2000"
        )
        start_refused(wrong, first.bootstrap)


# --- Settings ---


def test_a_setting_that_cannot_be(make_broker: MakeBroker) -> None:
    """Each is in `tests/config`."""
    broker = make_broker(auto__create__topics__enable="perhaps")
    start_refused(broker, "auto.create.topics.enable", "perhaps", "true")


def test_an_unknown_setting_warns_and_is_ignored(make_broker: MakeBroker) -> None:
    broker = make_broker(log__retention__minuts="5").start()
    assert "log.retention.minuts" in broker.log_text
    assert "log.retention.minutes" in broker.log_text, "it could have said which one is meant"
    assert offsets_of_new_topic(broker) == (0, 1)


def test_a_broker_that_starts_calls_no_topic_unknown_that_is_there(
    zookeeper: ZooKeeperServer, make_broker: MakeBroker
) -> None:
    """Whoever asks it in its first moments, before the controller has spoken, is answered when that has."""
    (address,) = ConnectString.parse(zookeeper.address).servers
    proxy = ZooKeeperProxy(address)
    broker = make_broker(chroot=f"{proxy.address}/{secrets.token_hex(6)}")
    try:
        broker.start()
        create(broker.bootstrap, "clicks")
        broker.stop()
        starting = threading.Thread(target=broker.start)
        starting.start()
        host, _, port = broker.bootstrap.rpartition(":")
        wait_until_accepting(host, int(port))
        with proxy.silent():
            codes: list[int] = []
            asking = threading.Thread(
                target=lambda: codes.append(error(metadata(broker.bootstrap, ["clicks"]).topics[0]))
            )
            asking.start()
            asking.join(1.0)
        asking.join(30)
        starting.join(30)
        assert codes == [0], "3 is UNKNOWN_TOPIC_OR_PARTITION"
    finally:
        broker.end()  # in order it ends with a ZooKeeper only
        proxy.close()


def wait_until_accepting(host: str, port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.001)  # nobody tells when somebody listens
