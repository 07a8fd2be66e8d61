"""Requests that only the controller can grant, sent to another broker: passed on to it as they are, with its answer.

What was passed on once is not passed on again: a broker that is not the controller then says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.dispatch import Request, Route

CLIENT_ID_PREFIX = "klog-broker-"


def is_for_controller(broker: Broker, route: Route, client_id: str | None) -> bool:
    """Whether the request has to be passed on."""
    return route.of_controller and not broker.controller.active and not (client_id or "").startswith(CLIENT_ID_PREFIX)


async def forward(broker: Broker, request: Request, route: Route) -> Any:
    """The controller's answer; our own refusal where none is within reach."""
    try:
        return await broker.office.ask(request.entity)
    except KlogError:
        assert route.handle is not None
        answer = route.handle(broker, request)
        return answer if isinstance(answer, dict) else await answer
