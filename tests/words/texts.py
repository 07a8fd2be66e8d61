"""The texts of klog's errors and log lines, read from the code: ``texts.txt`` has them all, to be reviewed by its diff.

``python -m tests.words.texts --update`` writes the file again after texts have changed.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from klog import errors

ROOT = Path(__file__).resolve().parent.parent.parent
SNAPSHOT = Path(__file__).with_name("texts.txt")
CLASSES = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.KlogError)
}
LEVELS = ("critical", "error", "exception", "warning", "info")


def template(node: ast.expr | None) -> str | None:
    """A text as the code has it, its values as ``{}``; None where it is not written there."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [template(node.left), template(node.right)]
        return "".join("{}" if side is None else side for side in sides) if any(sides) else None
    return None


def texts(source: str) -> Iterator[tuple[str, str]]:
    """Of a module: for each error and log line its section and its text, with the hint where there is one."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called, text = node.func, template(node.args[0] if node.args else None)
        if text is None:
            continue
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id in ("log", "_log", "logger") and called.attr in LEVELS:
                yield f"log {called.attr}", text
        elif isinstance(called, ast.Name) and called.id in CLASSES:
            hint = next((template(one.value) for one in node.keywords if one.arg == "hint"), None)
            yield f"{called.id} {CLASSES[called.id].code}", text + (f"\n    hint: {hint}" if hint else "")


@cache
def current() -> str:
    """All texts by class and level, each once."""
    sections: dict[str, set[str]] = {}
    for path in sorted((ROOT / "klog").rglob("*.py")):
        for section, text in texts(path.read_text()):
            sections.setdefault(section, set()).add(text.rstrip("\n"))
    return "\n".join(
        f"{name}\n" + "".join(f"  {text}\n" for text in sorted(some)) for name, some in sorted(sections.items())
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python -m tests.words.texts --update")
    SNAPSHOT.write_text(current())
