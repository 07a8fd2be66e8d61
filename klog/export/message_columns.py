"""The columns of a message, as exports and `format("klog")` have them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""As Spark wants it, to the letter: it compares names, order and types with the source's schema."""
