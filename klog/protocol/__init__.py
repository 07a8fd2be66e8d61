"""The Kafka protocol: keys, frames, headers and bodies. Pure: bytes in, typed objects out."""

from __future__ import annotations

import sys

# kio makes test strategies of its types wherever hypothesis can be imported: up to a second of CPU at the start of
# every process, and a folder `.hypothesis` in the current one. So hypothesis is hidden while kio's types are made,
# unless a test run has imported it already.
if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
