"""Events of denied requests: one for many of the same, and few of all together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from klog.metrics import Measures
from klog.security.permissions import Operation, Resource, ResourceType
from klog.server.event_limits import Repeats

log = logging.getLogger(__name__)

EVENT: Final = "denied"


class Denials:
    """Event loop only."""

    def __init__(
        self, tell: Callable[[str, Mapping[str, Any]], None], clock: Callable[[], float], measures: Measures
    ) -> None:
        """``tell`` records an event; ``clock``: seconds."""
        self._measures = measures
        self._tell = tell
        self._clock = clock
        self._repeats: Repeats[tuple[str, Operation, Resource]] = Repeats()

    def note(
        self, principal: str, host: str, operation: Operation, resource: Resource, request: str, rule: str
    ) -> None:
        """A request was denied."""
        self._measures.denied += 1
        before = self._repeats.count((principal, operation, resource), self._clock())
        if before is None:
            return
        facts: dict[str, Any] = {
            "principal": principal,
            "host": host,
            "operation": operation.title,
            "resource": str(resource),
            "request": request,
            "rule": rule,
        }
        if resource.kind in (ResourceType.TOPIC, ResourceType.GROUP):
            facts[resource.kind.name.lower()] = resource.name
        facts |= before
        self._tell(EVENT, facts)
        log.warning("denied %s of %s at %s: %s %s: %s", request, principal, host, operation.title, resource, rule)
