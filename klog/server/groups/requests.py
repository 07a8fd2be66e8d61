"""What the handlers of group requests share: plain values from a request."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from klog.groups.bounds import CLIENT_ID_CHARS_MAX

if TYPE_CHECKING:
    from klog.server.dispatch import Request

_MS = timedelta(milliseconds=1)


def ms(duration: timedelta) -> int:
    """Whole milliseconds."""
    return duration // _MS


def client_id_of(request: Request) -> str:
    """The client id, cut to the length that is kept; "" without one."""
    return (request.head.client_id or "")[:CLIENT_ID_CHARS_MAX]


def host_of(request: Request) -> str:
    """The member's address in Kafka's form: ``/127.0.0.1``."""
    return f"/{request.peer.rpartition(':')[0].strip('[]')}"
