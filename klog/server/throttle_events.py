"""What a broker says of clients that it throttles: one event for many of the same, and few of all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from klog.security.quotas import Limit, QuotaKey, Scope
from klog.server.repeats import Repeats

EVENT: Final = "throttled"


class ThrottleEvents:
    """Event loop only."""

    def __init__(self, tell: Callable[[str, Mapping[str, Any]], None], clock: Callable[[], float]) -> None:
        """``tell`` records an event; ``clock`` gives seconds."""
        self._tell = tell
        self._clock = clock
        self._repeats: Repeats[tuple[QuotaKey, Scope]] = Repeats()

    def note(self, key: QuotaKey, limit: Limit, user: str, client: str, host: str, wait_s: float) -> None:
        """A client of a user has to wait for so long."""
        before = self._repeats.count((key, limit.scope), self._clock())
        if before is None:
            return
        facts: dict[str, Any] = {
            "quota": str(key),
            "entity": limit.entity.path,
            "limit": limit.rate,
            "user": user,
            "client": client,
            "host": host,
            "throttle_ms": round(wait_s * 1000),
        }
        self._tell(EVENT, facts | before)
