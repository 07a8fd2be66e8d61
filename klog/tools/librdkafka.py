"""librdkafka's clients as the tools make them: they say nothing, wrong settings are the user's, and their connection
errors are klog's sentences: one for each address, however often it repeats.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from klog.client.producer_settings import BUFFER_KILOBYTES, MESSAGE_BYTES_MAX
from klog.client.servers import librdkafka_servers, silent_logger
from klog.errors import UsageError

QUEUE_MESSAGES_MAX: Final = 100_000
QUIET_S: Final = 120.0
"""librdkafka repeats itself every half a minute. An address that it did not mention for so long was well meanwhile."""

_TEXT = re.compile(
    r"(?:GroupCoordinator: |\w+://)*(?P<address>[^\s/]+:\d+)(?:/(?P<broker>\S+))?: (?P<why>.*?)"
    r"(?: \(after \d+ms in state .*\))?",
    re.DOTALL,
)


def made(kind: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
    """confluent-kafka's Producer or Consumer. UsageError for settings that it does not take."""
    try:
        return kind({"logger": silent_logger(), **settings})
    except KafkaException as error:
        raise UsageError(f"librdkafka rejects the settings: {error.args[0].str().strip()}") from None


def producer_settings(bootstrap: str, client_id: str, acks: str, compression: str) -> dict[str, Any]:
    """What the tools' producers have in common. With acks=all they are idempotent: a retry never doubles a message."""
    return {
        **librdkafka_servers(bootstrap),
        "client.id": client_id,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "compression.type": compression,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": BUFFER_KILOBYTES,
        "message.max.bytes": MESSAGE_BYTES_MAX,  # of smaller ones the broker decides
    }


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
