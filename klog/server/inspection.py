"""Inspects produced batches: headers, and records where a header is not enough to accept a batch.

Small record sets, and those whose headers are enough, are inspected on the event loop, where a change of threads would
take longer. Others wait for a thread, one record set per connection at a time, so that a large request does not delay
the small ones of other connections. Addresses take turns, so that a busy one waits only behind its own work. Meanwhile
the connection is not read (`Connection.pause_reading`), which keeps its appends in order and limits the waiting work.
"""

from __future__ import annotations

from typing import Final

from klog.errors import KlogError, MessageTooLarge
from klog.net.connection import Connection
from klog.record.batch import BatchHeader
from klog.record.contents import is_compressed
from klog.replication.led_partition import LedPartition
from klog.server.executors import Executors, Purpose
from klog.storage.log import Log

AT_ONCE_BYTES: Final = 4096
AT_ONCE_UNPACKED_BYTES: Final = 16 * 1024

Found = list[BatchHeader] | KlogError | None
"""The result for a record set: the headers to append it by, or the error; None: not inspected."""


def at_once(log: Log, records: memoryview) -> Found:
    """The result for a record set; None where the inspection may take too long for the event loop."""
    is_large = len(records) > AT_ONCE_BYTES
    if is_large and is_compressed(records):
        return None
    try:
        headers = log.check_headers(records)
        if log.is_plain(headers):
            return headers
        if is_large:
            return None
    except KlogError as error:
        return error.bare()
    try:
        return log.look_inside(records, headers, unpacked_bytes_max=AT_ONCE_UNPACKED_BYTES)
    except MessageTooLarge:  # only the inspection in a thread can tell
        return None
    except KlogError as error:
        return error.bare()


async def look(
    executors: Executors, partition: LedPartition, records: memoryview, connection: Connection | None
) -> Found:
    """The result for a record set, from a thread where it takes long.

    ``connection``: that of the request; None for the broker's own.
    """
    log = partition.log
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
        return log.look_inside(records, log.check_headers(records))
    except KlogError as error:
        return error.bare()
