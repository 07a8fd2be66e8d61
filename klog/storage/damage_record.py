"""Records of holes in a log, which make them legal (rule L2): one ``<first address>.damaged`` file each."""

from __future__ import annotations

from typing import Final, NamedTuple

DAMAGED_SUFFIX: Final = ".damaged"
_DAMAGED_MAGIC: Final = "klog-damaged"


class DamageRecord(NamedTuple):
    """Addresses [first, end) that no longer hold a batch.

    The file is one line, ``klog-damaged 1 <first> <end> <reason>``, then the bytes that were there, 1 MiB at most.
    """

    first_address: int
    end_address: int
    reason: str

    @property
    def file_name(self) -> str:
        return f"{self.first_address:020d}{DAMAGED_SUFFIX}"

    def render(self, data: bytes) -> bytes:
        return f"{_DAMAGED_MAGIC} 1 {self.first_address} {self.end_address} {self.reason}\n".encode() + data

    @classmethod
    def parse(cls, data: bytes) -> DamageRecord | None:
        """None if the file is not a damage record."""
        head = data.split(b"\n", 1)[0].decode("utf-8", "replace").split(" ", 4)
        if len(head) != 5 or head[:2] != [_DAMAGED_MAGIC, "1"] or not (head[2] + head[3]).isdecimal():
            return None
        return cls(int(head[2]), int(head[3]), head[4])
