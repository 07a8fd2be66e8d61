"""Reads back what `klog.render.values.to_tsv` writes."""

from __future__ import annotations

import re

from klog.render.values import UNKNOWN

UNESCAPED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r", "-": "-"}


def from_tsv(text: str) -> str | None:
    """What `to_tsv` wrote: the text, or None where it was unknown."""
    return None if text == UNKNOWN else re.sub(r"\\(.)", lambda found: UNESCAPED[found[1]], text)
