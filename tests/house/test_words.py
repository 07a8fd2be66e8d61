"""The words of what users read: the phrases of scripts/prose do not spread; docs/glossary.md lists the terms."""

from __future__ import annotations

import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.test_tidy import PAGES, ROOT, TRACKED
from tests.rows import each

GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = [
    term.strip(" `")
    for row in re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(), flags=re.M)
    if row.strip() not in ("term", "---")
    for term in re.sub(r"\([^)]*\)", "", row).split(",")
]
READ_BY_USERS = [
    path
    for path in (*PAGES, *(path for path in TRACKED if path.parent == ROOT / "man"))
    if path.name not in ("CHANGELOG.md", GLOSSARY.name) and not path.is_relative_to(ROOT / "tests")
]
OLD_NAMES = r"office|handovers?|refill(s|ed)?|unsettle[sd]?|roster|shower|keeper|knocks?|ops"
"""The makers' own words for the controller's election, a transfer of leadership, repair, a dirty mark, the members of a
group, a formatter, a rebalancer, probes and the operators' verbs."""


def read_prose() -> ModuleType:
    loader = SourceFileLoader("prose", str(ROOT / "scripts" / "prose"))
    spec = spec_from_loader("prose", loader)
    assert spec is not None
    loader.exec_module(module := module_from_spec(spec))
    return module


PROSE = read_prose()


def plain(path: Path) -> str:
    """A page as one line of lower-case words, without its commands and names."""
    text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", path.read_text(), flags=re.S)
    return " ".join(text.lower().split())


@pytest.mark.slow
@pytest.mark.long("scripts/check, which runs before the tests, does the same")
def test_no_room_has_more_of_the_banned_phrases_than_it_is_allowed() -> None:
    assert PROSE.too_many() == []


def test_a_banned_phrase_is_found_in_strings_and_comments_and_not_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PROSE, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text('nobody = 1  # nobody\n\nx = f"""{nobody} is no\nnumber"""\ny = ("made " "anew")\n')
    (tmp_path / "a.md").write_text("It is no longer here.\nNobody is told.\n")
    expected = [(1, "nobody"), (3, "is no"), (5, "anew")]
    assert [(line, found) for line, found, _ in sorted(PROSE.hits(Path("a.py")))] == expected
    assert [(line, found) for line, found, _ in PROSE.hits(Path("a.md"))] == [(2, "Nobody"), (2, "is told")]


@each("term", TERMS)
def test_each_term_of_the_glossary_is_used(term: str) -> None:
    """Somewhere in docs or help, as it is there, as a column or as a setting."""
    wanted = re.compile(r"\b" + re.escape(term.lower()).replace(r"\ ", r"[ .\n-]"))
    assert any(wanted.search(path.read_text().lower()) for path in READ_BY_USERS)


@each("path", READ_BY_USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_uses_the_field_s_words(path: Path) -> None:
    assert re.search(rf"\b({OLD_NAMES})\b", plain(path)) is None
