"""Requests that only the controller can grant, sent to another broker: passed on to it as they are, with its answer.

A request that was passed on once is not passed on again: a broker that is not the controller then refuses it.
"""

from __future__ import annotations

from typing import Any, Protocol

from klog.errors import KlogError
from klog.server.runtime import CLIENT_ID_PREFIX


class Active(Protocol):
    """This broker's own controller."""

    @property
    def active(self) -> bool: ...


class Asking(Protocol):
    """Reaches the controller, whichever broker it is."""

    async def ask(self, request: Any) -> Any: ...


class ToController:
    """What the dispatcher asks: a `klog.server.dispatch.Forwarding`."""

    def __init__(self, controller: Active, election: Asking) -> None:
        self._controller = controller
        self._election = election

    def is_needed(self, client_id: str | None) -> bool:
        return not self._controller.active and not (client_id or "").startswith(CLIENT_ID_PREFIX)

    async def ask(self, entity: Any) -> Any | None:
        try:
            return await self._election.ask(entity)
        except KlogError:
            return None
