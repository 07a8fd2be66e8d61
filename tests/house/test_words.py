"""The words of what users read: docs/glossary.md lists the terms."""

from __future__ import annotations

import re
from pathlib import Path

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


def plain(path: Path) -> str:
    """A page as one line of lower-case words, without its commands and names."""
    text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", path.read_text(), flags=re.S)
    return " ".join(text.lower().split())


@each("term", TERMS)
def test_each_term_of_the_glossary_is_used(term: str) -> None:
    """Somewhere in docs or help, as it is there, as a column or as a setting."""
    wanted = re.compile(r"\b" + re.escape(term.lower()).replace(r"\ ", r"[ .\n-]"))
    assert any(wanted.search(path.read_text().lower()) for path in READ_BY_USERS)


@each("path", READ_BY_USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_uses_the_field_s_words(path: Path) -> None:
    assert re.search(rf"\b({OLD_NAMES})\b", plain(path)) is None
