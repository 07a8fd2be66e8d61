"""The error of what a broker has answered, in klog's class and the broker's words."""

from __future__ import annotations

from typing import Any


def check(answer: Any, what: str = "") -> None:
    """Raise it, of an answer or of a part of one that has an ``error_code``; ``what`` was asked for."""
    from klog.client.blocking import error_of

    if int(answer.error_code):
        said = getattr(answer, "error_message", None) or answer.error_code.name
        raise error_of(int(answer.error_code), f"{what}: {said}" if what else said)
