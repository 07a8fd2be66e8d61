"""Modules that an installation may compile (`setup.py`): what a compiled class does not allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILED = re.findall(r'"(klog/[\w/]+\.py)"', (ROOT / "setup.py").read_text())
MAY_HAVE_SUBCLASSES = {"NamedTuple", "Protocol", "Exception", "PeerError"}
"""Bases of classes that mypyc leaves as they are."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "klog").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def bases_of(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0] for base in node.bases}


def subclasses_elsewhere(compiled: list[str]) -> list[str]:
    """Classes in modules that are not compiled, of bases that are: ``file: class(base)``."""
    modules = {one.removesuffix(".py").replace("/", ".") for one in compiled}
    closed = {
        (name.removesuffix(".py").replace("/", "."), node.name)
        for name, tree in trees()
        if name in compiled
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not bases_of(node) & MAY_HAVE_SUBCLASSES
    }
    found = []
    for name, tree in trees():
        if name in compiled:
            continue
        taken = {
            one.asname or one.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in modules
            for one in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{name}: {node.name}({base})" for base in bases_of(node) if (taken.get(base), base) in closed
                ]
    return found


def test_what_is_compiled_is_there() -> None:
    assert COMPILED and not [one for one in COMPILED if not (ROOT / one).is_file()]


def test_a_class_that_is_compiled_has_no_subclass_that_is_not() -> None:
    """Python refuses to make such an object, at the moment when it is made."""
    assert not subclasses_elsewhere(COMPILED)


def test_one_that_has_is_found() -> None:
    assert "klog/net/tls.py: TlsConnection(Connection)" in subclasses_elsewhere(["klog/net/connection.py"])
