"""No error that a broker keeps, or hands on as a value, has frames: `KlogError.bare` says why (rule P2).

A caught error may be looked at, logged, and raised from. Whoever puts it anywhere else takes a bare copy of it; whoever
raises what is kept raises a bare copy of that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.test_tidy import MODULES, ROOT
from tests.rows import each

ROOMS = ("server", "coordination", "net", "storage", "replication", "protocol", "record")
KEEPERS = [path for path in MODULES if path.relative_to(ROOT / "klog").parts[0] in ROOMS]
PURE = {
    *("isinstance", "str", "type", "repr"),
    *(
        "code_of",
        "words_of",
        "error_fields",
        "_error",
        "_note",
        "_refused",
        "self._refused",
        "_numbers",
        "_reason",
        "tls_reason",
        "tls_failed",
        "lost",
        "channel.not_a_broker",
        "hint_after",
        "listen_error",
        "_failure",
        "_wrong",
        "self._write_failed",
    ),
    *(
        "translated",
        "_translate",
        "self.failed",
        "self.read_failed",
        "self._cut_back",
    ),
    *("order.refused", "future.set_exception"),
    *("self.log_dir.fail", "log_dir.fail", "log.log_dir.fail", "one.fail"),
    *("self.write_failed", "log_dir.write_failed", "disk.write_failed", "log.log_dir.write_failed"),
}
"""What is made of an error by these has nothing of it but words and numbers; or (set_exception, which has its own way
out of the cycle) it is raised on where somebody waits for it."""


@each("path", KEEPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_kept_of_an_error_has_no_frames(path: Path) -> None:
    kept = list(_kept(ast.parse(path.read_text())))
    assert not kept, f"{path.relative_to(ROOT)}: take `.bare()` of it at {kept}"


def _kept(tree: ast.AST) -> Iterator[str]:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            for used in ast.walk(node):
                if isinstance(used, ast.Name) and used.id == node.name and not _is_fleeting(used, parents):
                    yield f"line {used.lineno}: {node.name}"
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Attribute | ast.Name):
            raised = ast.unparse(node.exc)
            if not raised.rpartition(".")[2].lstrip("_")[0].isupper():
                yield f"line {node.lineno}: raise {raised}"


def _is_fleeting(used: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether nothing has it once the handler is left."""
    where = parents[used]
    if isinstance(where, ast.BoolOp):
        where = parents[where]
    if isinstance(where, ast.Call):
        called = ast.unparse(where.func)
        return called in PURE or called.lstrip("_").startswith("log.")
    return isinstance(where, ast.Attribute | ast.FormattedValue | ast.Raise)
