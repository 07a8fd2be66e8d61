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
from tests.rows import each

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
    """Line and literal of each sentence that a test expects: text or bytes, in place, or in a table that it names."""
    tree = ast.parse(source)
    constants = {
        target.id: [one.value]
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    seen: set[tuple[int, int]] = set()
    for node, tables in with_tables(tree, constants):
        for one in expected_by(node):
            names = [part.id for part in ast.walk(one) if isinstance(part, ast.Name) and not is_text(one)]
            named = [value for name in names for value in tables.get(name, [])]
            for part in (part for value in (one, *named) for part in ast.walk(value)):
                text = text_of(part)
                if text is not None and SENTENCE.search(text) and (part.lineno, part.col_offset) not in seen:
                    seen.add((part.lineno, part.col_offset))
                    yield part.lineno, text


def with_tables(
    tree: ast.AST, tables: dict[str, list[ast.expr]]
) -> Iterator[tuple[ast.AST, dict[str, list[ast.expr]]]]:
    """Each node, with the expressions that names stand for there: constants of the module, columns of its rows."""
    waiting = [(tree, tables)]
    while waiting:
        node, outer = waiting.pop()
        for child in ast.iter_child_nodes(node):
            known = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                known = outer | {name: values for one in child.decorator_list for name, values in columns(one).items()}
            yield child, known
            waiting.append((child, known))


def columns(decorator: ast.expr) -> dict[str, list[ast.expr]]:
    """The values of each parameter of a ``parametrize``, or an ``each``, where they are written in place."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("pytest.mark.parametrize", "each")):
        return {}
    first, table = decorator.args[:2]
    names = [text for text in map(text_of, ast.walk(first)) if text is not None]
    names = [name.strip() for text in names for name in text.split(",")]
    found: dict[str, list[ast.expr]] = {name: [] for name in names}
    for row in table.elts if isinstance(table, ast.List | ast.Tuple) else []:
        if isinstance(row, ast.Call) and ast.unparse(row.func).endswith("param"):
            cells = row.args
        else:
            cells = row.elts if len(names) > 1 and isinstance(row, ast.Tuple) else [row]
        for name, cell in zip(names, cells, strict=False):
            found[name].append(cell)
    return found


def expected_by(node: ast.AST) -> list[ast.expr]:
    """What a piece of a test expects of a text."""
    if isinstance(node, ast.keyword) and node.arg == "match":
        return [node.value]
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return sides if any(is_text(side) for side in sides) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_asked = node.func.attr in ("startswith", "endswith", "count") and is_text(node.func.value)
        return node.args if is_asked or node.func.attr in ("wait_for_log", "logged") else []
    return []


def text_of(part: ast.AST) -> str | None:
    """A literal's text; None of what is no text."""
    value = part.value if isinstance(part, ast.Constant) else None
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else None


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


@pytest.mark.slow
def test_no_folder_quotes_more_sentences_than_it_is_allowed() -> None:
    allowed = Counter({name: int(count) for count, name in map(str.split, ALLOWED.read_text().splitlines())})
    assert {name: lines for name, lines in found().items() if len(lines) > allowed[name]} == {}


@each(
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
        ("assert b'has to be there' in process.stderr.read()", True),
        ("@pytest.mark.parametrize('what', ['it is not there'])\ndef test(what): assert what in error.message", True),
        ("@each('what', ['it is not there'])\ndef test(what): assert what in error.message", True),
        (
            "@pytest.mark.parametrize('n, what', [(1, 'it is not there')])\ndef test(n, what): raises(E, match=what)",
            True,
        ),
        (
            "@pytest.mark.parametrize('n, it', [(1, 'it is not there')])\ndef test(n, it): assert n in error.message",
            False,
        ),
        ("WHAT = ['this is not there']\ndef test(): assert error.message in WHAT", True),
    ],
)
def test_what_a_quote_is(line: str, is_quoted: bool) -> None:
    assert bool(list(quotes(line))) is is_quoted
