"""What a stream's messages say about themselves: which query wrote them, in which batch, and up to where.

    klog            of each message: the key of (query, partition), and the place batch << 32 | row, in the form of a
                    copied message's header (`klog.record.provenance_header`), so that the writer of copies reads it
    klog.stream     of the last message of each append: QUERY/BATCH/ROWS/DIGEST/MAC, and /last behind it on the last
                    append of the batch's part. ROWS of the part are in the log now; DIGEST is of all of them

Both stand behind the headers that the row has itself. Whoever may write to the topic can write both, and so hide rows:
MAC is by the secret that is kept with the query's checkpoint, and what has no right one does not count.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NamedTuple

from klog.names import TopicPartition
from klog.record.provenance_header import Copy, Source
from klog.record.records import Headers, Record

STAMP_HEADER: Final = "klog.stream"
ROW_BITS: Final = 32
"""Of a place: rows that one batch may have in one partition. The rest, 31 bits, are the batch's number."""
ROWS_MAX: Final = 1 << ROW_BITS
DIGEST_BYTES: Final = 8
_LAST: Final = "last"


def source_of(query: str, partition: int) -> Source:
    """What a query's part of a target partition is to the writer of copies: a source, whose offsets are places."""
    return Source("stream", query, partition)


def place(batch: int, row: int) -> int:
    """The number of a row among all that a query ever writes to a partition; it rises with the batch and the row."""
    return batch << ROW_BITS | row


def batch_of(place: int) -> int:
    return place >> ROW_BITS


class Stamp(NamedTuple):
    """How far a batch's part is in the log."""

    query: str
    batch: int
    rows: int
    digest: str
    is_last: bool

    @property
    def place(self) -> int:
        """Of the last row that is in the log."""
        return place(self.batch, self.rows - 1)

    def header(self, where: TopicPartition, secret: str) -> tuple[str, bytes]:
        words = [self.query, str(self.batch), str(self.rows), self.digest, self._mac(where, secret)]
        return STAMP_HEADER, "/".join([*words, *([_LAST] if self.is_last else [])]).encode()

    def _mac(self, where: TopicPartition, secret: str) -> str:
        said = "/".join(map(str, (*self, where)))
        return blake2b(said.encode(), key=secret.encode(), digest_size=DIGEST_BYTES).hexdigest()

    @classmethod
    def of(cls, record: Record, where: TopicPartition, secret: str) -> Stamp | None:
        """The stamp of a message in this partition; None where it has none, or one that others wrote."""
        for name, content in reversed(record.headers):
            if name == STAMP_HEADER and content is not None:
                return cls._parsed(content, where, secret)
        return None

    @classmethod
    def _parsed(cls, content: bytes, where: TopicPartition, secret: str) -> Stamp | None:
        try:
            query, batch, rows, digest, mac, *rest = content.decode("ascii").split("/")
            stamp = cls(query, int(batch), int(rows), digest, rest == [_LAST])
        except ValueError:  # UnicodeDecodeError is one
            return None
        return stamp if compare_digest(mac, stamp._mac(where, secret)) else None


class Stamped:
    """What of a query's messages in a partition is believed: those that end an append, by their stamps."""

    def __init__(self, query: str, where: TopicPartition, secret: str) -> None:
        self._query = query
        self._where = where
        self._secret = secret

    async def confirm(self, position: int, copy: Copy) -> bool:
        """Whether this query's writer ended an append with it. As `Originals.confirm`."""
        stamp = Stamp.of(copy.record, self._where, self._secret)
        return stamp is not None and stamp.query == self._query and stamp.place == copy.there


class Digest:
    """Of the rows of a part, in their order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def add(self, timestamp_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        # repr is exact for bytes, None and numbers, and says where each of them ends.
        self._hash.update(repr((timestamp_ms, key, value, headers)).encode("utf-8", "surrogatepass"))

    def text(self) -> str:
        return self._hash.hexdigest()
