"""The command line stands on Typer's public interface: the range of versions in pyproject.toml rests on that."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = re.compile(
    r"^\s*(?:from|import) (?:typer|click)\S*\._|^\s*from (?:typer|click)\S* import .*\b_", re.MULTILINE
)


def test_no_private_module_of_typer_or_click_is_imported() -> None:
    folders = ("klog", "tests", "scripts")
    found = [
        f"{path.relative_to(ROOT)}: {line[0].strip()}"
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for line in PRIVATE.finditer(path.read_text("utf-8"))
    ]
    assert found == []
    assert PRIVATE.search("    from typer._click.core import Context")  # it finds what it looks for
