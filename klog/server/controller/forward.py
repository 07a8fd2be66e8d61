"""Requests that only the controller can grant, sent to another broker: passed on to it as they are, with its answer.

A request that was passed on once is not passed on again: a broker that is not the controller then refuses it.
"""

from __future__ import annotations

from typing import Any, Protocol

from klog.coordination.acts import Actor
from klog.errors import KlogError
from klog.server.dispatch import forwarding_client
from klog.server.runtime import CLIENT_ID_PREFIX


class Active(Protocol):
    """This broker's own controller."""

    @property
    def active(self) -> bool: ...


class Asking(Protocol):
    """Reaches the controller, whichever broker it is."""

    async def ask(self, request: Any, *, client_id: str | None = None) -> Any: ...


class ToController:
    """What the dispatcher asks: a `klog.server.dispatch.Forwarding`."""

    def __init__(self, controller: Active, election: Asking, own_client_id: str) -> None:
        self._own_client_id = own_client_id
        self._controller = controller
        self._election = election

    def is_needed(self, client_id: str | None) -> bool:
        return not self._controller.active and not (client_id or "").startswith(CLIENT_ID_PREFIX)

    async def ask(self, entity: Any, actor: Actor) -> Any | None:
        try:
            return await self._election.ask(entity, client_id=forwarding_client(self._own_client_id, actor))
        except KlogError:
            return None
