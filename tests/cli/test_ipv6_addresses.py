"""What klog shows of a broker at an IPv6 address can be given to klog again."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from klog.client.metadata import BrokerNode
from klog.config.table_network import NamedAddress, parse_listener
from klog.coordination.brokers import Endpoint
from klog.names import host_port
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as bound:
            bound.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]:92"), ("127.0.0.1", "127.0.0.1:92"), ("a.b", "a.b:92")])
def test_an_address_has_brackets_where_it_needs_them(host: str, shown: str) -> None:
    assert host_port(host, 92) == shown
    assert BrokerNode(1, host, 92, None).address == shown
    assert str(Endpoint("A", "PLAINTEXT", host, 92)) == f"A://{shown}"
    assert str(NamedAddress("A", host, 92)) == f"A://{shown}"
    assert parse_listener(f"A://{shown}") == NamedAddress("A", host, 92)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_what_is_shown_can_be_given_again(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker()
    broker.listen = "[::1]:0"
    broker.start()
    assert broker.bootstrap.startswith("[::1]:")
    shown = [one["address"] for one in klog("status", "-B", broker.bootstrap, "-o", "json").about["brokers"]]
    assert shown == [broker.bootstrap]
    assert klog("topic", "list", "-B", shown[0]).code == 0
    gone = klog("topic", "list", "-B", "[::1]:1", "-o", "json")
    assert "[::1]:1" in gone.error["message"]
