"""`Message`: one message, to send or as read; `MessageSet`: several that are sent as one."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """One message. A sender creates it from its payload, ``Message(b"payload")``; a stream creates those that it reads.

    ``value`` and ``key`` are bytes, or None: the sender picks the serializer. ``timestamp`` is in ms since 1970 (UTC);
    a message sent without one gets the time of its sending. ``topic``, ``partition`` and ``offset`` are where it was
    read, and None in a message to send. Immutable.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def payload(self) -> bytes:
        """The value, by the paper's name; empty if it is null."""
        return self.value or b""


class MessageSet(tuple[Message, ...]):
    """Messages that are sent together and acknowledged together: ``MessageSet(message, ...)``.

    They keep their order within a partition. Messages without a key go to one partition, in one request if it has room;
    messages with keys go to their keys' partitions.
    """

    __slots__ = ()

    def __new__(cls, *messages: Message) -> MessageSet:
        """Raises TypeError for anything but a Message."""
        for one in messages:
            if not isinstance(one, Message):
                raise TypeError(f"a message set holds messages, not {type(one).__name__}; write Message(...) around it")
        return super().__new__(cls, messages)
