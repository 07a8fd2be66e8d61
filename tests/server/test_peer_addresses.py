"""By which listener a broker goes to another, for every pair of brokers that a rolling restart brings together."""

from __future__ import annotations

from klog.coordination.brokers import Broker, Endpoint
from klog.security.client_security import OPEN, ClientSecurity
from klog.server.peer_addresses import PeerAddress, PeerAddresses
from tests.rows import each

TLS = ClientSecurity("SSL")
PLAIN_AT, SECURED_AT = ("plain", 1), ("secured", 2)
OPENED = PeerAddresses()
BOTH = PeerAddresses("SECURED", TLS, ("PLAINTEXT",))
CLOSED = PeerAddresses("SECURED", TLS, ())
TO_OPENED = {"PLAINTEXT": PLAIN_AT}
TO_BOTH = {"PLAINTEXT": PLAIN_AT, "SECURED": SECURED_AT}
TO_CLOSED = {"SECURED": SECURED_AT}


@each(
    ("addresses", "endpoints", "inter", "address"),
    [
        (OPENED, TO_OPENED, PLAIN_AT, PeerAddress(*PLAIN_AT, OPEN)),
        (OPENED, TO_BOTH, SECURED_AT, PeerAddress(*PLAIN_AT, OPEN)),
        (BOTH, TO_OPENED, PLAIN_AT, PeerAddress(*PLAIN_AT, OPEN)),
        (BOTH, TO_BOTH, SECURED_AT, PeerAddress(*SECURED_AT, TLS)),
        (BOTH, TO_CLOSED, SECURED_AT, PeerAddress(*SECURED_AT, TLS)),
        (CLOSED, TO_BOTH, SECURED_AT, PeerAddress(*SECURED_AT, TLS)),
        # Never in the open where this broker has no plain listener, whatever the other one says.
        (CLOSED, TO_OPENED, PLAIN_AT, PeerAddress(*PLAIN_AT, TLS)),
        (CLOSED, {}, PLAIN_AT, PeerAddress(*PLAIN_AT, TLS)),
        # A broker of before there were listeners.
        (OPENED, {}, PLAIN_AT, PeerAddress(*PLAIN_AT, OPEN)),
        (BOTH, {}, PLAIN_AT, PeerAddress(*PLAIN_AT, OPEN)),
        # Names that differ, and no plain listener in common: where the other says, as this broker connects.
        (
            PeerAddresses("MINE", TLS, ("INSIDE",)),
            {"THEIRS": SECURED_AT, "PLAINTEXT": PLAIN_AT},
            SECURED_AT,
            PeerAddress(*SECURED_AT, TLS),
        ),
    ],
)
def test_the_way_to_a_broker(
    addresses: PeerAddresses, endpoints: dict[str, tuple[str, int]], inter: tuple[str, int], address: PeerAddress
) -> None:
    assert addresses.to(endpoints, inter) == address


def test_the_way_to_a_socket_is_by_the_protocol_of_its_listener() -> None:
    plain = Endpoint("PLAINTEXT", "PLAINTEXT", *PLAIN_AT)
    secured = Endpoint("SECURED", "SSL", *SECURED_AT)
    opened = Broker(1, *PLAIN_AT, endpoints=(plain,))
    closed = Broker(1, *SECURED_AT, endpoints=(secured,))
    both = Broker(1, *PLAIN_AT, inter_broker="secured:2", endpoints=(plain, secured))
    old = Broker(1, *PLAIN_AT)
    assert [BOTH.to_socket(one) for one in (opened, closed, both, old)] == [OPEN, TLS, TLS, OPEN]
    assert CLOSED.to_socket(old) is TLS
    assert BOTH.to_broker(both) == PeerAddress(*SECURED_AT, TLS)
