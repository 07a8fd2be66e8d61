"""The man pages and the reference are what the commands say, whole, and man can read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperOption

from klog.cli import flags, manual, spark_options_page
from klog.cli.command_table import ENTRIES
from klog.cli.root import walk
from tests.cli.runner import klog

ROOT = Path(__file__).resolve().parents[2]


def test_the_written_pages_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/build_man", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_check_notices_a_stale_page(tmp_path: Path) -> None:
    for folder in ("klog", "scripts"):
        (tmp_path / folder).symlink_to(ROOT / folder) if folder == "klog" else shutil.copytree(
            ROOT / folder, tmp_path / folder
        )
    shutil.copytree(ROOT / "man", tmp_path / "man")
    (tmp_path / "docs").mkdir()
    for page in (manual.REFERENCE, spark_options_page.PATH):
        shutil.copy(ROOT / page, tmp_path / page)
    (tmp_path / "man" / "klog-topic.1").write_text("old")
    (tmp_path / "man" / "klog-gone.1").write_text("a noun that is no more")
    check = [sys.executable, "scripts/build_man", "--check"]
    ran = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "klog-topic.1" in ran.stderr and "klog-gone.1" in ran.stderr
    subprocess.run(check[:-1], cwd=tmp_path, capture_output=True, check=True)
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert not (tmp_path / "man" / "klog-gone.1").exists()


@pytest.mark.parametrize("words", [words for words, _ in walk()], ids=" ".join)
def test_every_option_and_argument_is_on_its_noun_s_page(words: tuple[str, ...]) -> None:
    command = dict(walk())[words]
    page = manual.pages()[f"man/klog-{words[0]}.1"].replace("\\-", "-")
    for parameter in command.params:
        if isinstance(parameter, TyperOption):
            assert all(re.search(rf"(^|\s){re.escape(word)}\b", page, re.MULTILINE) for word in parameter.opts[:1])
        else:
            assert parameter.metavar and parameter.metavar in page


def test_the_overview_names_every_page_and_the_rules() -> None:
    text = manual.pages()["man/klog.1"].replace("\\-", "-")
    for entry in ENTRIES:
        assert f"klog-{entry.name} (1)" in text
    for word in ("KLOG_BOOTSTRAP_SERVER", "130", "jsonl", "@-1h", "--dry-run", "--bootstrap-server"):
        assert word in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_reads_them_without_a_warning() -> None:
    for path in sorted((ROOT / "man").glob("*.1")):
        ran = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", str(path)], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), path.name


@pytest.mark.parametrize("words", [words for words, _ in walk()], ids=" ".join)
def test_klog_man_shows_each_command(words: tuple[str, ...]) -> None:
    ran = klog("man", *words)
    assert ran.code == 0
    usage = ran.stdout.splitlines()[0]
    assert usage.startswith(" ".join(("klog", *words)))
    for parameter in dict(walk())[words].params:
        shown = parameter.opts[-1] if isinstance(parameter, TyperOption) else parameter.metavar
        common = getattr(parameter, "rich_help_panel", None) == flags.GLOBAL_PANEL
        assert shown is not None and (common or parameter.hidden or shown in ran.stdout)


def test_klog_man_of_a_noun_and_of_all() -> None:
    ran = klog("man", "topics")  # by its alias
    assert ran.code == 0 and {"klog topic create", "klog topic delete"} <= {
        " ".join(line.split()[:3]) for line in ran.stdout.splitlines()
    }
    ran = klog("man")
    assert ran.code == 0 and all(entry.name in ran.stdout for entry in ENTRIES) and "Exit codes" in ran.stdout
    ran = klog("man", "topik", "-o", "json")
    assert ran.code == 2 and "topic" in ran.error["hint"]
    ran = klog("man", "topic", "creat", "-o", "json")
    assert ran.code == 2 and "create" in ran.error["hint"]
