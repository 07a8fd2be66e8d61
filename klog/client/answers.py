"""The error of what a broker has answered, in klog's class and the broker's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import klog.security.errors  # noqa: F401 - for `error_of`: classes that have a number on the wire
from klog.errors import KlogError

A = TypeVar("A")


def check(answer: Any, what: object = "") -> None:
    """Raise it, of an answer or of a part of one that has an ``error_code``; ``what`` was asked for."""
    error = error_in(answer, what)
    if error is not None:
        raise error


def or_raise(answer: A | KlogError) -> A:
    """The answer, unless it is an error."""
    if isinstance(answer, KlogError):
        raise answer
    return answer


def error_in(answer: Any, what: object = "") -> KlogError | None:
    """The same error, returned; None without one."""
    wire = int(answer.error_code)
    if not wire:
        return None
    said = getattr(answer, "error_message", None) or answer.error_code.name
    return error_of(wire, f"{what}: {said}" if what else said)


def error_of(wire: int, message: str) -> KlogError:
    """klog's error with this code on the wire; for unknown codes the base class, with the number."""
    known = next((kind for kind in _below(KlogError) if kind.wire == wire > 0), None)
    return known(message) if known else KlogError(f"{message} (error {wire})")


def _below(base: type[KlogError]) -> Iterator[type[KlogError]]:
    """Its classes in the order in which they are defined: the first wins where two share a code on the wire."""
    for kind in base.__subclasses__():
        yield kind
        yield from _below(kind)
