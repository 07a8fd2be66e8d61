"""Secrets in lines that are kept: nothing of klog's takes one from a line, but a person may type one all the same."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
_GIVEN: Final = re.compile(
    r"""(?:password|jaas[._]config|(?:keystore|private)[._]key|key[._]pem|client_?secret|access_?token)["']?\s*[=:](?=\s*[^\s*])""",
    re.IGNORECASE,
)
"""By the names of settings, Kafka's and those of profiles."""


def without_secrets(line: str) -> str:
    """The line up to the first secret that it gives: quotes may be anywhere, and what follows may be a part of it."""
    found = _GIVEN.search(line)
    return line if found is None else line[: found.end()] + HIDDEN
