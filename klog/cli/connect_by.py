"""What ``-X`` says of the connection: security.protocol, sasl.*, ssl.*. No secrets: every user may see arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from klog.cli.name_values import settings
from klog.errors import UsageError
from klog.security.client_security import SETTINGS


def connect_by(given: Sequence[str] | None, values: dict[str, Any]) -> Mapping[str, str]:
    """``given``: the words of the flag that is for connections alone. Where a command's own ``-X`` is for more, its
    words are in ``values["properties"]``, and those of the connection are taken out of them. UsageError."""
    named = [(word, word.partition("=")[0].strip()) for word in values.get("properties") or ()]
    ours = [word for word, name in named if name in SETTINGS]
    if ours:
        values["properties"] = [word for word, name in named if name not in SETTINGS]
    found = settings(given) | settings(ours)
    for name in found:
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, 1, 0.6)
            raise UsageError(
                f"-X {name}: not a setting of connections",
                hint=f"did you mean {near[0]}?" if near else "security.protocol, sasl.* and ssl.* are",
            )
    return found
