"""The error of what a broker has answered, in klog's class and the broker's words."""

from __future__ import annotations

from typing import Any

import klog.security.errors  # noqa: F401 - for `error_of`: classes that have a number on the wire
from klog import errors
from klog.errors import KlogError


def check(answer: Any, what: object = "") -> None:
    """Raise it, of an answer or of a part of one that has an ``error_code``; ``what`` was asked for."""
    error = error_in(answer, what)
    if error is not None:
        raise error


def error_in(answer: Any, what: object = "") -> KlogError | None:
    """The same error, returned; None without one."""
    wire = int(answer.error_code)
    if not wire:
        return None
    said = getattr(answer, "error_message", None) or answer.error_code.name
    return error_of(wire, f"{what}: {said}" if what else said)


def code_and_message(error: KlogError | None) -> tuple[str | None, str | None]:
    """``error`` and ``message`` of a row."""
    return (None, None) if error is None else (error.code, error.message)


def error_of(wire: int, message: str) -> KlogError:
    """klog's error with this code on the wire; for unknown codes the base class, with the number."""
    known = _by_wire(errors.KlogError).get(wire)
    return known(message) if known else KlogError(f"{message} (error {wire})")


def _by_wire(base: type[KlogError]) -> dict[int, type[KlogError]]:
    """Every class below ``base`` by its wire code; the first defined wins where two share one."""
    table: dict[int, type[KlogError]] = {}
    for child in base.__subclasses__():
        if child.wire > 0:
            table.setdefault(child.wire, child)
        for wire, grandchild in _by_wire(child).items():
            table.setdefault(wire, grandchild)
    return table
