"""Modules that an installation may compile (`setup.py`): what a compiled class does not allow."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COMPILED = re.findall(r'"(klog/[\w/]+\.py)"', (ROOT / "setup.py").read_text())
MAY_HAVE_SUBCLASSES = {"NamedTuple", "Protocol", "Exception", "PeerError"}
"""Bases of classes that mypyc leaves as they are."""


class Module(NamedTuple):
    """``taken``: names imported from modules of klog, and where each comes from. ``bases``: of each class."""

    taken: dict[str, str]
    bases: dict[str, set[str]]


@cache
def modules() -> dict[str, Module]:
    """File -> what it has at its top level."""
    found = {}
    for path in sorted((ROOT / "klog").rglob("*.py")):
        body = ast.parse(path.read_text()).body
        taken = {
            one.asname or one.name: f"{node.module.replace('.', '/')}.py"
            for node in body
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for one in node.names
        }
        bases = {
            node.name: {ast.unparse(base).partition("[")[0] for base in node.bases}
            for node in body
            if isinstance(node, ast.ClassDef)
        }
        found[str(path.relative_to(ROOT))] = Module(taken, bases)
    return found


def subclasses_elsewhere(compiled: list[str]) -> list[str]:
    """Classes in modules that are not compiled, of bases that are: ``file: class(base)``."""
    closed = {
        (file, name)
        for file in compiled
        for name, bases in modules()[file].bases.items()
        if not bases & MAY_HAVE_SUBCLASSES
    }
    return [
        f"{file}: {name}({base})"
        for file, module in modules().items()
        if file not in compiled
        for name, bases in module.bases.items()
        for base in bases
        if (module.taken.get(base), base) in closed
    ]


def test_what_is_compiled_is_there() -> None:
    assert COMPILED and not [one for one in COMPILED if not (ROOT / one).is_file()]


def test_a_class_that_is_compiled_has_no_subclass_that_is_not() -> None:
    """A broker would fail at the first connection by TLS, where `TlsConnection` is made."""
    assert not subclasses_elsewhere(COMPILED)


def test_one_that_has_is_found() -> None:
    without = [one for one in COMPILED if one != "klog/net/tls.py"]
    assert subclasses_elsewhere(without) == ["klog/net/tls.py: TlsConnection(Connection)"]
