"""The pages of docs/: each is in the site's menu and on its first page; the page of profiles has the keys that the code
takes; README fits two screens; the pictures are there and shown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from klog.admin.profiles import COLOURS, KEYS, read_file

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def pages_of(menu: Any) -> list[str]:
    if isinstance(menu, str):
        return [menu]
    entries = menu.values() if isinstance(menu, dict) else menu
    return [page for entry in entries for page in pages_of(entry)]


def test_each_page_is_in_the_menu_once() -> None:
    listed = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_page_of_profiles_has_the_keys_of_the_code(tmp_path: Path) -> None:
    page = (DOCS / "profiles.md").read_text()
    table = page.partition("| key | value | effect |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert list(rows) == list(KEYS)
    assert {key for key, value in rows.items() if "`true`" in value} == {
        key for key, kind in KEYS.items() if kind is bool
    }
    assert tuple(re.findall(r"`(\w+)`", rows["colour"])) == COLOURS
    example = page.partition('title="profiles.toml"\n')[2].partition("```")[0]
    (tmp_path / "profiles.toml").write_text(example)
    found = read_file(tmp_path / "profiles.toml")
    assert found.current in found.by_name
    assert {key for section in tomllib.loads(example).values() if isinstance(section, dict) for key in section} == {
        *KEYS.keys() - {"token_command"}
    }


def test_each_page_is_on_the_first_page_once() -> None:
    linked = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text())
    assert sorted([*linked, "index.md"]) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_readme_fits_two_screens() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 105
    assert len(re.findall(r"!\[", text)) == 3
    commands = text.partition("## Ten commands")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| `klog ", commands, re.MULTILINE)) == 10


def test_each_picture_is_drawn_by_a_script_and_shown() -> None:
    shown = re.compile(r"!\[[^\]]+\]\(((?:docs/)?pictures/[\w-]+\.svg)\)")
    pages = (ROOT / "README.md", *DOCS.glob("*.md"))
    there = {page.parent / one for page in pages for one in shown.findall(page.read_text())}
    assert there == set((DOCS / "pictures").iterdir())
    made = "".join((ROOT / "scripts" / name).read_text() for name in ("pictures", "drawings"))
    assert [path.name for path in there if path.name not in made and f'"{path.stem}"' not in made] == []
