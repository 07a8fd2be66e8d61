"""The special timestamps of ListOffsets; klog's CountMessages takes the first two in place of offsets, too."""

from __future__ import annotations

EARLIEST = -2
"""The log start offset."""
LATEST = -1
"""The log end offset: of the last message + 1."""
NEWEST = -3
"""The message with the largest timestamp (KIP-734)."""
