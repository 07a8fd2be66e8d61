"""Each command line of docs/runbook.md is run by an incident, with its flags."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.incidents.operator import runbook_lines

FORMS = {"klog status SUBJECT"}
"""What stands for several lines, each of which is there, too."""


def lines_run() -> set[str]:
    """The lines that incidents give to `Operator.runbook` and `Operator.start`, which refuse others."""
    found = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name == Path(__file__).name:
            continue
        nodes = ast.walk(ast.parse(file.read_text()))
        found |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return found


def test_each_command_line_of_the_runbook_is_run() -> None:
    assert len(runbook_lines()) > 30
    assert runbook_lines() - FORMS - lines_run() == {"kill -9 PID"}, "of two cures of a hung broker one is taken"
