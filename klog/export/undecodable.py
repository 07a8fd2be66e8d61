"""Messages of an export that could not be decoded: how many a run may have, and why the first of them could not be.

They are exported with the others, as bytes with the reason, beside the data (`klog.export.root`), so nothing is lost;
but who reads the data does not see them. So a run with more than it may have ends with exit code 1, after its commit.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.errors import CorruptLog, UsageError
from klog.export.batch_writer import is_undecodable
from klog.export.files import format_of
from klog.export.root import ExportRoot


class UndecodableLimit(NamedTuple):
    """``N`` messages of a run, or ``P%`` of its messages."""

    text: str

    @classmethod
    def parse(cls, text: str) -> UndecodableLimit:
        """UsageError for what is neither a number from 0 on nor a percentage from 0 to 100."""
        number = text.removesuffix("%")
        if not (number.isdecimal() and number.isascii()) or (number != text and int(number) > 100):
            raise UsageError(f"--max-undecodable {text!r}: expected a number of messages, or a percentage such as 1%")
        return cls(text)

    def allows(self, undecodable: int, messages: int) -> bool:
        if self.text.endswith("%"):
            return 100 * undecodable <= int(self.text[:-1]) * messages
        return undecodable <= int(self.text)


def limit_of(place: ExportRoot) -> UndecodableLimit | None:
    """What the first run has fixed; None for a root of an earlier klog, in which any number is taken."""
    known = place.identity()
    return None if known is None or known.max_undecodable is None else UndecodableLimit.parse(known.max_undecodable)


def first_reason(place: ExportRoot, batch: int) -> str | None:
    """Why the first undecodable message in the files of a batch could not be decoded; None where there is none."""
    manifest, _ = place.manifest(batch)
    for path in sorted(file.path for file in manifest.files if is_undecodable(file.path)):
        kind = format_of(path)
        if kind is None:
            continue
        try:
            with place.store.open_input(place.file_path(manifest, path)) as opened:
                for rows in kind.read(opened, ("error",), thorough=False):
                    if rows.num_rows:
                        return str(rows.column("error")[0].as_py())
        except CorruptLog:
            continue  # `verify` finds it
    return None
