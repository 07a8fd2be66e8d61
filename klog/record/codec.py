"""The compression codecs of a batch, by their numbers in the lowest three bits of its attributes."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Its name as configured and shown: ``none gzip snappy lz4 zstd``."""
        return self.name.lower()


CODEC_MASK = 0x07
"""Of a batch's attributes. Five to seven are unused."""
