"""librdkafka's connection errors, as klog's sentences: one for each address, however often it repeats."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

QUIET_S: Final = 120.0
"""librdkafka repeats itself every half a minute. An address that it did not mention for so long was well meanwhile."""

_TEXT = re.compile(
    r"(?:GroupCoordinator: |\w+://)*(?P<address>[^\s/]+:\d+)(?:/(?P<broker>\S+))?: (?P<why>.*?)"
    r"(?: \(after \d+ms in state .*\))?",
    re.DOTALL,
)


class ConnectionErrors:
    """Belongs to one client of librdkafka; its ``error_cb`` asks `sentence` what to say."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mentioned: dict[str, float] = {}
        """Address -> when librdkafka last spoke of it."""
        self.last: str | None = None
        """The error, in klog's words."""

    def sentence(self, error: KafkaError) -> str | None:
        """The sentence for it; None where it was shown already."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return None  # said of each by itself
        about, self.last = _in_words(error)
        before, now = self._mentioned.get(about), self._clock()
        self._mentioned[about] = now
        return None if before is not None and now - before < QUIET_S else self.last


def _in_words(error: KafkaError) -> tuple[str, str]:
    """The address that it is about (or the sentence itself), and the sentence."""
    text = error.str()
    found = _TEXT.fullmatch(text)
    if found is None:
        return text, f"{text}; still trying"
    why = found["why"].rpartition(" failed: ")[2] or found["why"]
    broker = f" (broker {found['broker']})" if (found["broker"] or "").isdigit() else ""
    return found["address"], f"no connection to {found['address']}{broker}: {why}; still trying"
