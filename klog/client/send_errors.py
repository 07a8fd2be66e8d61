"""librdkafka's errors as klog's: the border of the producer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from klog.client.answers import error_of
from klog.client.servers import silent_logger
from klog.errors import (
    BufferFull,
    CannotConnect,
    InvalidConfig,
    KlogError,
    MessageTooLarge,
    TimedOut,
    UnknownTopicOrPartition,
    UsageError,
)

_LOCAL: Final[Mapping[int, type[KlogError]]] = {
    KafkaError._MSG_TIMED_OUT: TimedOut,
    KafkaError._TIMED_OUT: TimedOut,
    KafkaError._TIMED_OUT_QUEUE: TimedOut,
    KafkaError._TRANSPORT: CannotConnect,
    KafkaError._ALL_BROKERS_DOWN: CannotConnect,
    KafkaError._RESOLVE: CannotConnect,
    KafkaError._QUEUE_FULL: BufferFull,
    KafkaError._UNKNOWN_TOPIC: UnknownTopicOrPartition,
    KafkaError._UNKNOWN_PARTITION: UnknownTopicOrPartition,
    KafkaError._INVALID_ARG: UsageError,
    KafkaError.MSG_SIZE_TOO_LARGE: MessageTooLarge,
}

_NOT_IN_THE_LOG: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_MSG,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors before the append, or before the send. After any other error the outcome is unknown."""

TOO_LARGE_HINT: Final = (
    "raise message.max.bytes and queue.buffering.max.kbytes of the producer, which the program sets, and "
    "max.message.bytes of the topic, which `klog topic config TOPIC max.message.bytes=N` sets"
)

_UNKNOWN_NAME = re.compile(r'No such configuration property: "([^"]+)"')


def undelivered(error: KafkaError, topic: str, message: Any, max_bytes: Mapping[str, int] = {}) -> KlogError:
    """klog's error of a delivery report. One of a size names the size of the message's value, and the topic's limit
    where it is known: ``max_bytes`` by topic."""
    partition = message.partition()
    where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        where += f": a message of {len(message):,} bytes"
        if topic in max_bytes:
            where += f" (max.message.bytes of the topic is {max_bytes[topic]:,} for a batch, as last asked)"
    return error_from(error, where)


def untaken(error: KafkaError, where: str, size: int, settings: Mapping[str, Any]) -> KlogError:
    """klog's error where librdkafka, with these settings, has not taken a message of ``size`` bytes to send."""
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return error_from(error, where)
    return MessageTooLarge(
        f"{where}: a message of {size:,} bytes; message.max.bytes and queue.buffering.max.kbytes of the producer let "
        f"at most {settings['message.max.bytes']:,} pass",
        hint=TOO_LARGE_HINT,
    )


def error_from(error: KafkaError, what: str) -> KlogError:
    """klog's error of the same meaning; its message begins with ``what``."""
    said = f"{what}: {error.str()}" if what else error.str()
    kind = _LOCAL.get(error.code())
    if kind is MessageTooLarge:
        return kind(said, hint=TOO_LARGE_HINT)
    if kind is not None:
        return kind(said)
    return error_of(error.code(), said) if error.code() > 0 else KlogError(said)


def may_be_in_the_log(error: KafkaError) -> bool:
    """Whether the message may have been appended despite the error."""
    return error.code() not in _NOT_IN_THE_LOG


def settings_refused(make: Callable[[dict[str, Any]], object], settings: Mapping[str, Any]) -> tuple[list[str], str]:
    """The names of settings that librdkafka does not know, of which it reports one at a time, and what it says of the
    others; ``make`` makes a client of it."""
    unknown: list[str] = []
    left = dict(settings)
    while True:
        try:
            make(left)
            return unknown, ""
        except KafkaException as error:
            said = str(error.args[0].str()).strip()
        except (TypeError, ValueError) as error:
            return unknown, str(error)
        match = _UNKNOWN_NAME.search(said)
        if match is None or match[1] not in left:
            return unknown, said
        unknown.append(match[1])
        del left[match[1]]


def open_producer(settings: Mapping[str, Any]) -> Any:
    """confluent-kafka's producer, which logs nothing; InvalidConfig that names every setting it does not know, or the
    value it refuses."""
    silent = {**settings, "logger": silent_logger()}
    try:
        return Producer(silent)
    except (KafkaException, TypeError):
        raise _refused(silent) from None


def _refused(settings: Mapping[str, Any]) -> InvalidConfig:
    unknown, said = settings_refused(Producer, settings)
    if unknown:
        named = ", ".join(sorted(unknown))
        return InvalidConfig(
            f"a producer has no setting {named}", hint="Kafka's names, of today or of 0.8, with _ for ."
        )
    return InvalidConfig(f"librdkafka refuses a setting: {said}")
