"""Inspects the records of a produced batch where its header is not enough to accept it.

A small record set is inspected on the event loop: a change of threads would take longer. Others wait for a thread, one
record set per connection at a time, so that a large request does not delay the small ones of other connections.
Addresses take turns, so that a busy one waits only behind its own work. Meanwhile the broker reads nothing more from
that connection (`Connection.pause_reading`): this keeps its appends in order and limits the waiting work.
"""

from __future__ import annotations

from typing import Final

from klog.errors import KlogError, MessageTooLarge
from klog.net.connection import Connection
from klog.record.batch import BatchHeader
from klog.replication.led_partition import LedPartition
from klog.server.executors import Executors, Purpose
from klog.storage.log import Log

AT_ONCE_BYTES: Final = 4096
AT_ONCE_UNPACKED_BYTES: Final = 16 * 1024

Found = list[BatchHeader] | KlogError | None
"""The result for a record set: the headers to append it by, or the error; None where it was not inspected."""


def at_once(log: Log, records: memoryview) -> Found:
    """The result for a small record set; None where the inspection may take too long for an event loop."""
    if len(records) > AT_ONCE_BYTES:
        return None
    try:
        return log.check(records, unpacked_bytes_max=AT_ONCE_UNPACKED_BYTES)
    except MessageTooLarge:  # compressed or decompressed: only the thread can tell
        return None
    except KlogError as error:
        return error.bare()


async def look(
    executors: Executors, partition: LedPartition, records: memoryview, connection: Connection | None
) -> Found:
    """The result for a record set, from a thread where that takes long; None where no inspection is needed.

    ``connection``: the one that sent it; None for the broker's own request.
    """
    log = partition.log
    if log.is_plain(records):
        return None
    found = at_once(log, records)
    if found is not None:
        return found
    whose = "" if connection is None else connection.address
    try:
        return await executors.run_in_turn(whose, "", Purpose.UNPACKING, _look, log, records)
    except KlogError as error:  # too much waits
        return error.bare()


def _look(log: Log, records: memoryview) -> Found:
    try:
        return log.check(records)
    except KlogError as error:
        return error.bare()
