"""The topics that the cluster wants audited, by their setting ``klog.audit.enable`` (DescribeConfigs, KIP-133).

The same answer has each topic's ``max.message.bytes``, which the error of a message that is too large names.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from klog.client.audit_publisher import admin_settings
from klog.client.servers import silent_logger

log = logging.getLogger(__name__)

ENABLE: Final = "klog.audit.enable"
MAX_BYTES: Final = "max.message.bytes"
ANSWER_S: Final = 10.0
ASK_AGAIN_S: Final = 1.0
ASK_AGAIN_MAX_S: Final = 60.0
"""Between questions about topics that are not there yet, or whose brokers are away: twice as long each time."""


class AuditedTopics:
    """Asks about each topic when a producer first sends to it, and about all of them again every ``age_s``.

    A topic that is not known, whose cluster is not klog's, or whose settings the user may not read
    (DescribeConfigs) is not audited.
    """

    def __init__(self, settings: Mapping[str, Any], audited: set[str], *, age_s: float) -> None:
        """``settings``: those of confluent-kafka's producer; topics are put into ``audited``, and taken out of it."""
        self._settings = admin_settings(settings)
        self._audited = audited
        self.max_bytes: dict[str, int] = {}
        """``max.message.bytes`` of the topics, as of the last answer."""
        self._age_s = age_s
        self._topics: set[str] = set()
        self._asking: threading.Thread | None = None
        self._ask_at = time.monotonic() + age_s
        self._pause_s = ASK_AGAIN_S

    def ask(self, topic: str, wait_s: float) -> None:
        """Ask about a topic, and wait for the answer; later than ``wait_s`` it holds for the messages after it."""
        self._topics.add(topic)
        asking = threading.Thread(target=self._ask, args=([topic],), name="klog-audited-topic", daemon=True)
        asking.start()
        asking.join(wait_s)

    def tick(self) -> None:
        """Ask again what is due; to be called often, by one thread. Never waits."""
        if time.monotonic() < self._ask_at or (self._asking is not None and self._asking.is_alive()):
            return
        self._ask_at = time.monotonic() + self._age_s
        if self._topics:
            topics = sorted(self._topics)
            self._asking = threading.Thread(target=self._ask, args=(topics,), name="klog-audited-topics", daemon=True)
            self._asking.start()

    def _ask(self, topics: list[str]) -> None:
        # The client lives as long as its questions: a connection to each broker for a question in five minutes would
        # be one more for the brokers of each producer.
        client = AdminClient({**self._settings, "logger": silent_logger()})
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        is_settled = True
        for resource, answer in client.describe_configs(wanted, request_timeout=ANSWER_S).items():
            topic = resource.name
            try:
                told = answer.result(ANSWER_S)
            except (KafkaException, TimeoutError) as error:
                is_settled &= self._cannot_tell(topic, error)
                continue
            entry, limit = told.get(ENABLE), told.get(MAX_BYTES)
            if limit is not None and (limit.value or "").isdigit():
                self.max_bytes[topic] = int(limit.value)
            if entry is not None and entry.value == "true":
                self._audited.add(topic)
            else:
                self._audited.discard(topic)
        if is_settled:
            self._pause_s = ASK_AGAIN_S
        else:
            self._ask_at = min(self._ask_at, time.monotonic() + self._pause_s)
            self._pause_s = min(2 * self._pause_s, ASK_AGAIN_MAX_S)

    def _cannot_tell(self, topic: str, error: Exception) -> bool:
        """Whether this is the answer for now: what was known of the topic stays as it is."""
        reason = error.args[0] if isinstance(error, KafkaException) else None
        if isinstance(reason, KafkaError) and reason.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            log.info("%s: the user may not read its settings (DescribeConfigs), so it is not audited", topic)
            return True
        return False
