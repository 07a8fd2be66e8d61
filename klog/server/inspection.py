"""Looks into what is produced, where a batch's header does not say enough to take it.

What is small is looked into at once: a change of threads takes longer. The rest waits for a thread, one record set of a
connection at a time, so that nobody's large request holds up the others' small ones; addresses take turns, so that one
which sends many waits behind itself. Meanwhile nothing more is read from that connection
(`Connection.pause_reading`), which keeps its appends in their order and bounds what waits.
"""

from __future__ import annotations

from typing import Final

from klog.errors import KlogError, MessageTooLarge
from klog.net.connection import Connection
from klog.record.batch import BatchHeader
from klog.replication.partition import Partition
from klog.server.executors import Executors, Purpose
from klog.storage.log import Log

AT_ONCE_BYTES: Final = 4096
AT_ONCE_UNPACKED_BYTES: Final = 16 * 1024

Found = list[BatchHeader] | KlogError | None
"""What was found in a record set: the headers to append it by, or why it is refused; None where nobody has looked."""


def at_once(log: Log, records: memoryview) -> Found:
    """What a look at a small record set finds; None where that may take too long for an event loop."""
    if len(records) > AT_ONCE_BYTES:
        return None
    try:
        return log.check(records, unpacked_bytes_max=AT_ONCE_UNPACKED_BYTES)
    except MessageTooLarge:  # packed or unpacked: beside the loop it is known for certain
        return None
    except KlogError as error:
        return error.bare()


async def look(executors: Executors, partition: Partition, records: memoryview, connection: Connection | None) -> Found:
    """What is found in a record set, in a thread where that takes long; None where there is no need to look.

    ``connection``: on which it came; None where the broker asks itself.
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
