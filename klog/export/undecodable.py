"""Messages of an export that could not be decoded: how many a run may have, and why the first of them could not be.

They are exported with the others, as bytes with the reason, beside the data (`klog.export.root`), so nothing is lost;
but who reads the data does not see them. So a run with more than it may have ends with exit code 1, after its commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from klog.errors import KlogError, Refused, UsageError
from klog.export.batch_writer import is_undecodable
from klog.export.files import read_stored
from klog.export.manifest import ExportedFile
from klog.export.root import ExportRoot
from klog.export.stores.store import Store
from klog.names import counted

_LIMIT = re.compile(r"[0-9]{1,15}|(?:[0-9]{1,2}(?:\.[0-9]{1,6})?|100)%")


class UndecodableLimit(NamedTuple):
    """``N`` messages of a run, or ``P%`` of its messages."""

    text: str

    @classmethod
    def parse(cls, text: str) -> UndecodableLimit:
        """UsageError for what is neither a number from 0 on nor a percentage from 0 to 100."""
        if not _LIMIT.fullmatch(text):
            raise UsageError(
                f"--max-undecodable {text[:40]!r}: expected a number of messages, or a percentage such as 1%"
            )
        return cls(text)

    def allows(self, undecodable: int, messages: int) -> bool:
        if self.text.endswith("%"):
            return 100 * undecodable <= Decimal(self.text[:-1]) * messages
        return undecodable <= int(self.text)


def limit_of(place: ExportRoot) -> UndecodableLimit | None:
    """What the first run has fixed; None for a root of an earlier klog, in which any number is taken. Refused where the
    root has something else there.
    """
    known = place.identity()
    if known is None or known.max_undecodable is None:
        return None
    try:
        return UndecodableLimit.parse(str(known.max_undecodable))
    except UsageError:
        raise Refused(
            f"{place} says max_undecodable {str(known.max_undecodable)[:40]!r}: expected a number, or a percentage",
            hint="--max-undecodable of a run goes before it",
        ) from None


def first_reason(store: Store, files: Iterable[ExportedFile], where: Callable[[str], str]) -> str | None:
    """Why the first undecodable message in a batch's files could not be decoded; None where there is none.

    ``where``: the path in the store of a file's.
    """
    for path in sorted(file.path for file in files if is_undecodable(file.path)):
        for rows in read_stored(store, where(path), ("error",)):
            if rows.num_rows:
                return str(rows.column("error")[0].as_py())
    return None


def told(place: ExportRoot, messages: str, reason: str | None) -> str:
    """Of so many messages: why the first cannot be decoded, and how to read them."""
    first = "" if reason is None else f", the first because {reason}"
    return f"{messages} cannot be decoded{first}; {place}/{place.undecodable_folders} has the bytes and the reasons"


def told_of_all(root: str | Store, messages: int) -> str | None:
    """The same of all that an export has, so many; None where it is being changed at this moment."""
    place, reason = ExportRoot(root), None
    try:
        for batch in place.batch_numbers():
            manifest, _ = place.manifest(batch)
            reason = first_reason(place.store, manifest.files, partial(place.file_path, manifest))
            if reason is not None:
                break
    except KlogError:
        return None
    return told(place, counted(messages, "message"), reason)
