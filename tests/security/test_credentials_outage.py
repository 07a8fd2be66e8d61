"""A broker whose ZooKeeper session ends knows its users meanwhile and afterwards, and sees changes again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.admin import acts
from klog.coordination import scram_credentials
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import KlogError
from klog.net.channel import Channel
from klog.security.client_security import ClientSecurity
from klog.security.scram import ScramCredential, ScramMechanism
from tests.broker_fixture import RunningBroker
from tests.security.broker_doors import unique
from tests.until import until
from tests.zookeeper_fixture import session_of
from tests.zookeeper_proxy import ZooKeeperProxy

LISTENER = "SASL_PLAINTEXT"
NAME = "alice"
WITHIN_S = 20.0


@pytest.fixture
def broker(proxy: ZooKeeperProxy, tmp_path: Path) -> Iterator[RunningBroker]:
    """Between it and ZooKeeper is the proxy."""
    made = RunningBroker(tmp_path, f"{proxy.address}/{unique('outage')}", zookeeper__session__timeout__ms="2000")
    made.listen = f"{LISTENER}://localhost:0"
    made.settings |= {
        "security.inter.broker.protocol": LISTENER,
        "sasl.jaas.config": f'x required username="{NAME}" password="first";',
    }
    yield made
    made.end()


def can_log_in(broker: RunningBroker, password: str) -> bool:
    host, _, port = broker.bootstrap.rpartition(":")
    security = ClientSecurity(LISTENER, "SCRAM-SHA-256", NAME, password)

    async def play() -> None:
        await (await Channel.connect(host, int(port), security=security)).close()

    try:
        asyncio.run(play())
    except KlogError:
        return False
    return True


@pytest.mark.long("test_permissions.py has the outage")
def test_users_are_known_without_a_session_and_changes_seen_with_the_next(
    zookeeper: ZooKeeperServer, proxy: ZooKeeperProxy, broker: RunningBroker
) -> None:
    chroot = "/" + broker.zookeeper.partition("/")[2]
    with session_of(zookeeper.address + chroot, create_chroot=True) as session:

        def write(password: str) -> None:
            made = {one: ScramCredential.of_password(one, password, b"some salt") for one in ScramMechanism}
            scram_credentials.write(session, NAME, made, acts.here(session))

        write("first")
        broker.start()
        assert can_log_in(broker, "first")
        with proxy.silent():
            broker.wait_for_log("WARNING", "credentials", timeout_s=WITHIN_S)
            assert can_log_in(broker, "first")
        broker.wait_for_log("ERROR", "has expired", timeout_s=WITHIN_S)
        assert can_log_in(broker, "first")
        write("second")
        until(lambda: can_log_in(broker, "second"))
        assert not can_log_in(broker, "first")
