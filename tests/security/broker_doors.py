"""Brokers with several listeners, their certificates, and users, for the tests of this folder."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klog.admin import acts
from klog.coordination import brokers, scram_credentials
from klog.security.scram import ScramCredential, ScramMechanism
from tests.broker_fixture import RunningBroker
from tests.security.certificates import Authority
from tests.zookeeper_fixture import session_of


@dataclass(frozen=True)
class Doors:
    """A running broker, its ports by listener, and what its clients need."""

    broker: RunningBroker
    ports: dict[str, int]
    authority: Authority

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def librdkafka(self, listener: str, protocol: str | None = None, **others: Any) -> dict[str, Any]:
        """Settings of librdkafka for a listener."""
        return {
            "bootstrap.servers": self.address(listener),
            "security.protocol": protocol or listener,
            "ssl.ca.location": str(self.authority.path),
            **others,
        }


def ports_of(broker: RunningBroker) -> dict[str, int]:
    """Listener -> port, from ZooKeeper."""
    with session_of(broker.zookeeper, create_chroot=True) as zookeeper:
        found = brokers.find(zookeeper, broker.broker_id)
        assert found is not None
        return {one.listener: one.port for one in found.broker.endpoints}


def add_user(broker: RunningBroker, name: str, password: str) -> None:
    """In ZooKeeper, as Kafka's tool writes it."""
    with session_of(broker.zookeeper, create_chroot=True) as zookeeper:
        scram_credentials.write(
            zookeeper,
            name,
            {one: ScramCredential.of_password(one, password, b"a salt of %d" % len(name)) for one in ScramMechanism},
            acts.here(zookeeper),
        )


def listen_to(*listeners: str) -> str:
    return ",".join(f"{one}://localhost:0" for one in listeners)


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


def pem(folder: Path, authority: Authority, name: str = "localhost") -> dict[str, str]:
    """A broker's settings of TLS."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue(folder / "broker.pem", name)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
    }
