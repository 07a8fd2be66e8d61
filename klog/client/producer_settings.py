"""The settings of a producer, under Kafka's names of today and of 0.8, and what librdkafka calls them.

A setting is a keyword, with ``_`` for ``.``: ``queue_buffering_max_ms=5000``. Settings that are not in this table go to
librdkafka (``ssl.ca.location``, ``statistics.interval.ms``); one that librdkafka does not know is an error that names
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from socket import gethostname
from typing import Any, Final

from klog.client.bootstrap import parse_bootstrap
from klog.client.security_files import as_librdkafka
from klog.errors import InvalidConfig, UsageError
from klog.names import AUDIT_TOPIC

AUDIT_WINDOW_MS: Final = 600_000

MESSAGE_BYTES_MAX: Final = (100 << 20) - (64 << 10)
"""What fits, with what is around it, into the largest request that brokers take unless told (socket.request.max.bytes).
They close the connection that sends a larger one, and librdkafka would send it again for as long as it may."""

BUFFER_KILOBYTES: Final = 100 << 10
"""What may wait to be sent: enough for a second at full speed, and for the largest message."""

ALIASES: Final[Mapping[str, str]] = {
    # 0.8's producer
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    # today's, where librdkafka has another name
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "max.block.ms": "queue.enqueue.timeout.ms",
    "max.request.size": "message.max.bytes",
    "delivery.timeout.ms": "message.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    # 0.8.2's new producer
    "timeout.ms": "request.timeout.ms",
    "metadata.fetch.timeout.ms": "queue.enqueue.timeout.ms",
}
"""Other names of settings, and those that librdkafka gets; two names of one setting in one call are an error."""

NO_USE: Final[Mapping[str, str]] = {
    "serializer.class": "values are bytes; serialize before you send",
    "key.serializer.class": "keys are bytes; serialize before you send",
    "key.serializer": "keys are bytes; serialize before you send",
    "value.serializer": "values are bytes; serialize before you send",
    "partitioner.class": "give a function: partitioner=lambda key, partitions: ...",
    "compressed.topics": "a producer compresses all its topics; use one for each kind",
    "transactional.id": "there are no transactions",
    "on_delivery": "give the callback to send()",
    "dr_cb": "give the callback to send()",
}
"""Settings that klog refuses, and the alternative."""

_CODECS: Final = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd"}


def codec_name(codec: str) -> str:
    """0.8 took the number of a codec as well as its name."""
    return _CODECS.get(codec, codec)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """``window_ms`` of one count; ``publish_ms`` between publications while a window is open; ``host`` in stamps."""

    host: str
    window_ms: int = AUDIT_WINDOW_MS
    publish_ms: int = 60_000
    topic: str = AUDIT_TOPIC


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings that klog's part of the producer reads itself, and ``librdkafka`` for the rest."""

    is_async: bool
    enqueue_timeout_s: float | None
    """How long a full buffer holds up a send; None: until there is room."""
    metadata_age_s: float
    answer_s: float
    """The time limit of the cluster's first answer."""
    audit: AuditSettings | None
    librdkafka: dict[str, Any] = field(default_factory=dict)

    @property
    def first_answer_s(self) -> float:
        """How long the first message to a topic waits for what the cluster says of the topic.

        No longer than for its own delivery, or for room in the buffer; in the async mode a second, which is much for an
        answer and little for a program that starts while brokers are away.
        """
        message_ms = float(self.librdkafka["message.timeout.ms"])
        bounds = [self.answer_s, 1.0 if self.is_async else math.inf, message_ms / 1000 if message_ms else math.inf]
        return min(bounds if self.enqueue_timeout_s is None else [*bounds, self.enqueue_timeout_s])


def read_settings(
    given: Mapping[str, Any], *, is_async: bool, audit: bool | None, partitioner: str | None
) -> ProducerSettings:
    """The settings from a producer's keywords. InvalidConfig names a setting with an invalid name or value.

    Defaults: ``acks`` all, idempotent, as `klog produce` (0.8's own default, 0, waits for no broker). Sync sends at
    once. Async has 0.8's buffer: ``queue.buffering.max.ms`` 5000, ``queue.buffering.max.messages`` 10000,
    ``queue.enqueue.timeout.ms`` -1; but ``batch.num.messages`` is 1000 where 0.8 has 200, which costs a fifth more.
    """
    found = _by_librdkafkas_names(given)
    rdkafka: dict[str, Any] = {
        "client.id": "klog",
        "acks": "all",
        "message.timeout.ms": 120_000,  # today's delivery.timeout.ms
        "queue.buffering.max.kbytes": BUFFER_KILOBYTES,
        "queue.buffering.max.messages": 10_000,
        "linger.ms": 5000 if is_async else 0,
        "topic.metadata.refresh.interval.ms": 300_000,
        "message.max.bytes": MESSAGE_BYTES_MAX,  # of smaller ones the broker decides
    }
    if is_async:
        rdkafka["batch.num.messages"] = 1000
    rdkafka.update(as_librdkafka(found, "the producer"))
    rdkafka["partitioner"] = partitioner or "murmur2_random"
    block_on_full = rdkafka.pop("block.on.buffer.full", None)
    enqueue_ms = _number(rdkafka.pop("queue.enqueue.timeout.ms", None), "queue.enqueue.timeout.ms", -1)
    if block_on_full is not None and not _boolean(block_on_full, "block.on.buffer.full"):
        enqueue_ms = 0
    if "buffer.memory" in rdkafka:
        rdkafka["queue.buffering.max.kbytes"] = max(
            1, _number(rdkafka.pop("buffer.memory"), "buffer.memory", 0) // 1024
        )
    bound_messages(rdkafka)
    rdkafka["compression.type"] = codec_name(str(rdkafka.get("compression.type") or "none"))
    acks = rdkafka["acks"] = str(rdkafka["acks"])
    if acks not in ("all", "-1", "0", "1"):  # 0.8 waited for so many replicas; each message would be refused
        raise InvalidConfig(f"acks={acks}: must be all, which is -1, or 1 or 0")
    if "enable.idempotence" not in rdkafka:
        rdkafka["enable.idempotence"] = acks in ("all", "-1") and str(rdkafka.get("retries", "1")) != "0"
    age_ms = _number(rdkafka["topic.metadata.refresh.interval.ms"], "metadata.max.age.ms", 0)
    answer_s = _number(rdkafka.get("request.timeout.ms"), "request.timeout.ms", 10_000) / 1000
    audited = audit_settings(rdkafka, audit)
    return ProducerSettings(
        is_async,
        None if enqueue_ms < 0 else enqueue_ms / 1000,
        age_ms / 1000,
        max(answer_s, 1.0),
        audited,
        rdkafka,
    )


def _by_librdkafkas_names(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    called: dict[str, str] = {}
    for keyword, value in given.items():
        name = keyword.replace("_", ".")
        if name in NO_USE or keyword in NO_USE:
            raise InvalidConfig(f"a producer has no setting {name}", hint=NO_USE.get(name) or NO_USE[keyword])
        meant = ALIASES.get(name, name)
        if meant in found:
            raise InvalidConfig(f"{called[meant]} and {name} are the same setting; give one of them")
        called[meant] = name
        found[meant] = str(value).lower() if isinstance(value, bool) else value
    if "bootstrap.servers" in found:
        servers = found["bootstrap.servers"]
        found["bootstrap.servers"] = servers if isinstance(servers, str) else ",".join(servers)
        try:
            parse_bootstrap(found["bootstrap.servers"], f"the producer's {called['bootstrap.servers']}")
        except UsageError as error:
            raise InvalidConfig(error.message, hint=error.hint) from None
    return found


def audit_settings(rdkafka: dict[str, Any], audit: bool | None) -> AuditSettings | None:
    """Takes ``audit.*`` out of the settings; None where `audit` is False. InvalidConfig for an invalid setting."""
    host = str(rdkafka.pop("audit.host", None) or "")
    window_ms = _number(rdkafka.pop("audit.window.ms", None), "audit.window.ms", AUDIT_WINDOW_MS)
    publish_ms = _number(rdkafka.pop("audit.publish.ms", None), "audit.publish.ms", 60_000)
    topic = str(rdkafka.pop("audit.topic", AUDIT_TOPIC))
    if audit is False:
        return None
    if window_ms <= 0 or publish_ms <= 0:
        raise InvalidConfig("audit.window.ms and audit.publish.ms are above 0")
    if any(map(str.isspace, host)):  # a stamp separates its words by them
        raise InvalidConfig(f"audit.host {host!r}: a name without spaces is wanted")
    return AuditSettings(host or "".join(gethostname().split()) or "localhost", window_ms, publish_ms, topic)


def bound_messages(rdkafka: dict[str, Any]) -> None:
    """No message larger than the buffer: of such a one librdkafka would say for ever that the buffer is full."""
    room = _number(rdkafka["queue.buffering.max.kbytes"], "queue.buffering.max.kbytes", 0) * 1024
    rdkafka["message.max.bytes"] = min(_number(rdkafka["message.max.bytes"], "message.max.bytes", 0), room)


def _number(value: Any, name: str, default: int) -> int:
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidConfig(f"{name}={value!r}: a whole number is wanted") from None


def _boolean(value: Any, name: str) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}={value!r}: true or false is wanted")
    return text == "true"
