"""A session with the ZooKeeper of the shared broker, and a subject of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest

from klog.coordination.schemas import SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import RunningBroker


@pytest.fixture
def subject() -> str:
    """A subject's name that no other test has."""
    return f"s-{secrets.token_hex(6)}"


@pytest.fixture
def unique() -> str:
    """A word for schemas that no other test has."""
    return f"N{secrets.token_hex(6)}"


@pytest.fixture
def registry(connect: Callable[..., ZooKeeper]) -> SchemaRegistry:
    """An empty registry in a chroot of the test's own."""
    return SchemaRegistry(connect())


@pytest.fixture
def registry_of_broker(broker: RunningBroker) -> Iterator[SchemaRegistry]:
    """The registry of the shared broker, read and written past it."""
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        yield SchemaRegistry(session)
