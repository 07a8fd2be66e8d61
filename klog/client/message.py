"""`Message`: what is sent and what is read; `MessageSet`: several that are sent as one."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """One message. Made by who sends it from its payload, ``Message(b"payload")``; made by klog where it is read.

    ``value`` and ``key`` are bytes, or None: who sends picks the serializer. ``timestamp`` is in ms since 1970 (UTC);
    one that is sent without gets the time of its sending. ``topic``, ``partition`` and ``offset`` are where it was
    read, and None of one that is sent. Immutable.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def payload(self) -> bytes:
        """The value, as the paper calls it; empty where it is null."""
        return self.value or b""


class MessageSet(tuple[Message, ...]):
    """Messages that are sent together and acknowledged together: ``MessageSet(message, ...)``.

    They keep their order within a partition. Those without a key go to one partition, in one request where it holds
    them; those with keys go where their keys belong.
    """

    __slots__ = ()

    def __new__(cls, *messages: Message) -> MessageSet:
        """TypeError for what is no Message."""
        for one in messages:
            if not isinstance(one, Message):
                raise TypeError(f"a message set holds messages, not {type(one).__name__}; write Message(...) around it")
        return super().__new__(cls, messages)
