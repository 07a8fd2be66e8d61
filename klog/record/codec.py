"""The compression codecs of a batch, by number."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in settings and output: ``none gzip snappy lz4 zstd``."""
        return self.name.lower()


DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Per batch. Producers' batches have some MB before compression; the limit stops decompression bombs."""

CODEC_MASK = 0x07
"""Bits of a batch's attributes. 5 to 7 are unused."""
