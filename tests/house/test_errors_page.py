"""docs/errors.md has each error by its name, with the number and the exit code that the code gives it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import klog
from klog.errors import KlogError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def _classes(base: type[KlogError]) -> Iterator[type[KlogError]]:
    yield base
    for child in base.__subclasses__():
        yield from _classes(child)


@cache
def _of_klog() -> list[type[KlogError]]:
    for module in pkgutil.walk_packages(klog.__path__, "klog."):
        if module.name != "klog.__main__":
            importlib.import_module(module.name)
    return [one for one in _classes(KlogError) if one.__module__.startswith("klog.")]


def _rows() -> list[list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    return [row for row in cells if len(row) == 5 and row[0].replace("_", "").isupper()]


def test_each_error_has_one_row_and_each_row_an_error() -> None:
    names = [row[0] for row in _rows()]
    assert sorted(set(names)) == sorted({one.code for one in _of_klog()})
    assert len(names) == len(set(names))


def test_rows_agree_with_the_code() -> None:
    rows = {row[0]: row for row in _rows()}
    for one in _of_klog():
        _, number, again, cause, _ = rows[one.code]
        allowed = {parent.wire for parent in _of_klog() if parent.code == one.code}
        assert int(number) in allowed, one
        if int(number) == one.wire:
            assert again == ("yes" if one.retriable else "no"), one
            if "code" in vars(one):
                assert (one.exit_code == 2) == ("exit code 2" in cause), one
