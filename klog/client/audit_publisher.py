"""A producer's counts on their way to the audit topic, beside its messages and over the same connections."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klog.client.audit import TOPIC_SETTINGS, Auditor, Publication

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.2
"""Whether anything is due; a look costs some microseconds."""
CREATION_S: Final = 10.0
MAKE_EVERY_S: Final = 30.0
"""Where the topic cannot be made: so often it is tried."""
CLOSE_S: Final = 10.0
"""How long a producer that closes tries to have its last counts told."""

_ADMIN_PREFIXES: Final = ("bootstrap.servers", "client.id", "security.", "sasl.", "ssl.", "socket.", "broker.address")


class AuditPublisher:
    """Publishes what an `Auditor` has counted. One thread at a time, the one that polls."""

    def __init__(self, rdkafka: Any, auditor: Auditor, settings: Mapping[str, Any]) -> None:
        """``rdkafka``: confluent-kafka's producer; ``settings``: those it was made with."""
        self._rdkafka = rdkafka
        self._auditor = auditor
        self._settings = {name: value for name, value in settings.items() if name.startswith(_ADMIN_PREFIXES)}
        self._topic_is_there = False
        self._maker: threading.Thread | None = None
        self._make_at = 0.0
        self._look_at = 0.0

    def tick(self) -> None:
        """Publish what is due; to be called often."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            if not self._topic_is_there and now >= self._make_at and self._auditor.is_used:
                # At once, and not when it is needed: then a broker may be away, and this thread has acks to hear.
                self._make_at = now + MAKE_EVERY_S
                self._maker = threading.Thread(target=self._make, name="klog-audit-topic", daemon=True)
                self._maker.start()
            self._publish(self._auditor.due())

    def close(self) -> None:
        """Publish all that was not, for a while again and again; the caller flushes before and after."""
        deadline = time.monotonic() + CLOSE_S
        while (publications := self._auditor.due(closing=True)) and time.monotonic() < deadline:
            self._publish(publications, closing=True)
            self._rdkafka.flush(max(deadline - time.monotonic(), 0.1))

    def _make(self) -> None:
        self._topic_is_there = ensure_audit_topic(self._settings, self._auditor.settings.topic)

    def _publish(self, publications: list[Publication], *, closing: bool = False) -> None:
        if publications and not self._topic_is_there:
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
                self._rdkafka.poll(0.1)  # room may come of it

    def _answered(self, error: KafkaError | None, publication: Publication) -> None:
        if error is not None:
            self._failed(publication, error.str())
        else:
            self._auditor.published(publication)

    def _failed(self, publication: Publication, reason: str) -> None:
        log.warning("counts for the audit could not be published, and are tried again: %s", reason)
        self._auditor.published(publication, failed=True)


def ensure_audit_topic(settings: Mapping[str, Any], topic: str) -> bool:
    """Make the topic where it is not there; whether it is there now. Blocks for some `CREATION_S` at most.

    It gets as many replicas as the cluster's topics do, or, where brokers are away, as there are brokers.
    """
    client = AdminClient({**settings, "logger": logging.getLogger("klog.librdkafka")})
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
