"""What the handlers of group requests have in common: plain values out of a request."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from klog.server.groups.bounds import CLIENT_ID_CHARS_MAX

if TYPE_CHECKING:
    from klog.server.dispatch import Request

_MS = timedelta(milliseconds=1)


def ms(duration: timedelta) -> int:
    """Whole milliseconds."""
    return duration // _MS


def client_id_of(request: Request) -> str:
    """What the client calls itself, as much of it as is kept; "" when it does not say."""
    return (request.head.client_id or "")[:CLIENT_ID_CHARS_MAX]


def host_of(request: Request) -> str:
    """The member's address as Kafka shows it: ``/127.0.0.1``."""
    return f"/{request.peer.rpartition(':')[0].strip('[]')}"
