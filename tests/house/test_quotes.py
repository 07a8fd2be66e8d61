"""Tests do not quote sentences: they look at classes, codes, fields, names and numbers, so that words can be improved.

The sentences themselves are looked at in tests/words alone. What quotes some still is counted for each folder in
``quotes-allowed.txt``, and the counts only fall.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_tidy import ROOT, TRACKED

ALLOWED = Path(__file__).with_name("quotes-allowed.txt")
SENTENCE = re.compile(r"(?<![\w'`./$<-])(?!klog\b)[A-Za-z][a-z']+,? [a-z][a-z']+,? [a-z][a-z']*(?![\w(=/])")
"""Three words of prose in a row: names, numbers and commands are none."""
TEXTS = frozenset(
    [
        "caplog",
        "description",
        "detail",
        "err",
        "error_message",
        "found",
        "hint",
        "line",
        "log_text",
        "message",
        "messages",
        "note",
        "notes",
        "output",
        "page",
        "reason",
        "said",
        "shown",
        "stderr",
        "stdout",
        "str",
        "text",
        "told",
        "value",
        "why",
        "words",
    ]
)
"""What messages and output are called in tests."""
EXEMPT = ("words", "house", "simulation", "benchmark", "faults", "interop")


def quotes(source: str) -> Iterator[tuple[int, str]]:
    """Line and literal of each sentence that a test expects."""
    for node in ast.walk(ast.parse(source)):
        expected: list[ast.expr] = []
        if isinstance(node, ast.keyword) and node.arg == "match":
            expected = [node.value]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            expected = sides if any(is_text(side) for side in sides) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_asked = node.func.attr in ("startswith", "endswith", "count") and is_text(node.func.value)
            expected = node.args if is_asked or node.func.attr in ("wait_for_log", "logged") else []
        for one in expected:
            for part in ast.walk(one):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and SENTENCE.search(part.value):
                    yield part.lineno, part.value


def is_text(side: ast.expr) -> bool:
    return any(
        (isinstance(part, ast.Attribute) and part.attr in TEXTS) or (isinstance(part, ast.Name) and part.id in TEXTS)
        for part in ast.walk(side)
    )


def found() -> dict[str, list[str]]:
    """The quotes by folder, as ``path:line: literal``."""
    lines: dict[str, list[str]] = {}
    for path in TRACKED:
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests"):
            folder = path.relative_to(ROOT / "tests").parts[0]
            if folder not in EXEMPT:
                some = [f"{path.relative_to(ROOT)}:{at}: {text!r}" for at, text in quotes(path.read_text())]
                lines[folder] = lines.get(folder, []) + some
    return lines


def test_no_folder_quotes_more_sentences_than_it_is_allowed() -> None:
    allowed = Counter({name: int(count) for count, name in map(str.split, ALLOWED.read_text().splitlines())})
    assert {name: lines for name, lines in found().items() if len(lines) > allowed[name]} == {}


@pytest.mark.parametrize(
    ("line", "is_quoted"),
    [
        ("raises(E, match='is not a number')", True),
        ("assert 'has to be there' in ran.stderr", True),
        ("assert f'{topic} does not exist' == error.message", True),
        ("assert error.message.startswith('there was no room')", True),
        ("broker.wait_for_log('this one has stopped')", True),
        ("raises(E, match=r'2 partitions .* orders-1')", False),
        ("assert 'klog topic alter' in error.hint", False),
        ("assert kind == 'another leads the log'", False),
    ],
)
def test_what_a_quote_is(line: str, is_quoted: bool) -> None:
    assert bool(list(quotes(line))) is is_quoted
