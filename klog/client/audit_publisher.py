"""A producer's counts on their way to the audit topic, beside its messages and over the same connections."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klog.client.audit import TOPIC_SETTINGS, Auditor, Publication
from klog.client.send_errors import may_be_in_the_log
from klog.client.servers import silent_logger

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.2
"""Between checks whether a count is due; a check costs some microseconds."""
CREATION_S: Final = 10.0
MAKE_AGAIN_S: Final = 1.0
MAKE_AGAIN_MAX_S: Final = 30.0
"""Between attempts to create the topic, if it cannot be created: the first pause, then twice as long each time."""
CLOSE_S: Final = 10.0
"""How long a closing producer tries to publish its last counts."""

_ADMIN_PREFIXES: Final = (
    "bootstrap.servers",
    "client.id",
    "security.",
    "sasl.",
    "oauth_cb",
    "ssl.",
    "socket.",
    "broker.address",
)


class AuditPublisher:
    """Publishes the counts of an `Auditor`. One thread at a time, the one that polls."""

    def __init__(self, rdkafka: Any, auditor: Auditor, settings: Mapping[str, Any]) -> None:
        """``rdkafka``: confluent-kafka's producer; ``settings``: the ones that it was created with."""
        self._rdkafka = rdkafka
        self._auditor = auditor
        self._settings = admin_settings(settings)
        self._topic_is_there = False
        self._maker: threading.Thread | None = None
        self._make_at = 0.0
        self._make_pause_s = MAKE_AGAIN_S
        self._look_at = 0.0

    def tick(self) -> None:
        """Publish what is due; to be called often."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            if not self._topic_is_there and now >= self._make_at and self._auditor.is_used:
                # Create the topic now, not when it is needed: a broker may be away then, and this thread serves acks.
                self._make_at = now + self._make_pause_s
                self._make_pause_s = min(2 * self._make_pause_s, MAKE_AGAIN_MAX_S)
                self._maker = threading.Thread(target=self._make, name="klog-audit-topic", daemon=True)
                self._maker.start()
            self._publish(self._auditor.due())

    def close(self) -> None:
        """Publish all remaining counts, with retries for a while; the caller flushes before and after."""
        if self._maker is not None:
            self._maker.join(CREATION_S)
        deadline = time.monotonic() + CLOSE_S
        while (left_s := deadline - time.monotonic()) > 0:
            publications = self._auditor.due(closing=True)
            if not publications and not self._auditor.has_unpublished:
                return
            self._publish(publications, closing=True)
            # Without the topic, what was produced to it waits in the buffer: the topic must be created meanwhile.
            self._rdkafka.flush(left_s if self._topic_is_there else min(left_s, MAKE_AGAIN_S))

    def _make(self) -> None:
        self._topic_is_there = ensure_audit_topic(self._settings, self._auditor.settings.topic)

    def _publish(self, publications: list[Publication], *, closing: bool = False) -> None:
        if (publications or closing) and not self._topic_is_there:
            if self._maker is not None:
                self._maker.join(CREATION_S)
            if closing and not self._topic_is_there:
                self._make()
        for one in publications:
            try:
                self._rdkafka.produce(
                    self._auditor.settings.topic,
                    one.to_json(),
                    one.producer.encode(),
                    on_delivery=lambda error, message, one=one: self._answered(error, one),
                )
            except (BufferError, KafkaException) as error:
                self._failed(one, str(error))
                self._rdkafka.poll(0.1)  # this may make room in the buffer

    def _answered(self, error: KafkaError | None, publication: Publication) -> None:
        if error is not None:
            self._failed(publication, error.str())
        else:
            self._auditor.published(publication)

    def _failed(self, publication: Publication, reason: str) -> None:
        log.warning("counts for the audit could not be published, and are tried again: %s", reason)
        self._auditor.published(publication, failed=True)


def admin_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a producer's settings for librdkafka those by which its cluster is reached."""
    return {name: value for name, value in settings.items() if name.startswith(_ADMIN_PREFIXES)}


def ensure_audit_topic(settings: Mapping[str, Any], topic: str) -> bool:
    """Create the topic if it does not exist. Returns whether it exists now. Blocks for some `CREATION_S` at most.

    It gets as many replicas as the cluster's topics do, or, if brokers are away, as there are brokers.
    """
    client = AdminClient({**settings, "logger": silent_logger()})
    try:
        try:
            _create(client, topic, replicas=-1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            _create(client, topic, replicas=len(client.list_topics(timeout=CREATION_S).brokers))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            log.warning("the audit's topic %s could not be made: %s", topic, error.args[0].str())
            return False
    except TimeoutError:
        return False
    return True


def _create(client: Any, topic: str, *, replicas: int) -> None:
    made = NewTopic(topic, num_partitions=1, replication_factor=replicas, config=dict(TOPIC_SETTINGS))
    client.create_topics([made], operation_timeout=CREATION_S, request_timeout=CREATION_S)[topic].result(CREATION_S)


def settle_delivery(
    auditor: Auditor, window: Any, then: Callable[[Any, Any], None], error: KafkaError | None, answer: Any
) -> None:
    """A stamped message counts when its fate is known: confluent-kafka's callback, with ``then`` behind it."""
    auditor.settle(window, error, maybe=error is not None and may_be_in_the_log(error))
    then(error, answer)
