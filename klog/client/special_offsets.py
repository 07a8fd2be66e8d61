"""The protocol's two special timestamps of ListOffsets; klog's CountMessages takes them in place of offsets too."""

from __future__ import annotations

EARLIEST = -2
"""The log start offset."""
LATEST = -1
"""The log end offset: of the last message + 1."""
