"""docs/rules.md has each rule that is cited, and each rule in it is kept and tested where it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.test_tidy import ROOT, TRACKED
from tests.rows import each

PAGE = ROOT / "docs" / "rules.md"
SECTIONS: dict[str, str] = dict(
    re.findall(r"^### ([A-Z]\d+): [^\n]+\n(.*?)(?=^##|\Z)", PAGE.read_text(), flags=re.M | re.S)
)
CITED = re.compile(r"\brules? ((?:[LZRPG]\d+(?:, | and | to )?)+)")
BARE = re.compile(r"\b[LZRPG]\d+\b")


def cited_in(path: Path) -> set[str]:
    """The rules that a file cites as such."""
    return {rule for some in CITED.findall(path.read_text(errors="replace")) for rule in BARE.findall(some)}


def files_after(heading: str, rule: str) -> list[str]:
    found = re.search(rf"{heading}: (.*?)(?=\n- |\n\n|\Z)", SECTIONS[rule], flags=re.S)
    return re.findall(r"`([^`]+)`", found[1]) if found else []


def test_each_rule_that_is_cited_is_on_the_page() -> None:
    texts = [path for path in TRACKED if path.suffix in (".py", ".md")]
    cited = {rule: path.relative_to(ROOT) for path in texts for rule in cited_in(path)}
    assert len(cited) > 20
    assert not {rule: path for rule, path in cited.items() if rule not in SECTIONS}


@each("rule", SECTIONS)
@each(("heading", "under"), [("Kept in", "klog/"), ("Tested by", "tests/")])
def test_each_rule_of_the_page_is_kept_and_tested_where_it_says(rule: str, heading: str, under: str) -> None:
    files = files_after(heading, rule)
    assert files
    for name in files:
        assert name.startswith(under)
        cited = re.search(rf"\b{rule}\b|\btest_{rule.lower()}_", (ROOT / name).read_text())
        assert cited, f"{name} does not cite {rule}"


@each("rule", SECTIONS)
def test_each_rule_says_what_it_prevents(rule: str) -> None:
    assert "Prevents:" in SECTIONS[rule]
