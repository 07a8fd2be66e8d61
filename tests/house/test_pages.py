"""The pages of docs/: each is in the site's menu; the page of profiles has the keys that the code takes; README's
pictures are there."""

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
    assert found.current in found.profiles
    assert {key for section in tomllib.loads(example).values() if isinstance(section, dict) for key in section} == {
        *KEYS.keys() - {"token_command"}
    }


def test_the_readme_shows_the_shell_top_and_a_failover() -> None:
    shown = re.findall(r"!\[[^\]]+\]\((docs/pictures/[\w-]+\.svg)\)", (ROOT / "README.md").read_text())
    assert {Path(one).stem for one in shown} >= {"shell", "top", "failover"}
    made = (ROOT / "scripts" / "pictures").read_text()
    assert all((ROOT / one).is_file() and Path(one).name in made for one in shown)
