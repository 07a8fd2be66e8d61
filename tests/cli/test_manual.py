"""The man pages and the reference are what the commands say, whole, and man can read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from typer.core import TyperOption

from klog.cli.command_table import ENTRIES
from klog.cli.man import installed_page
from klog.cli.root import walk
from scripts.manual import pages as manual
from scripts.manual import spark_options_page
from tests.cli.runner import klog
from tests.rows import each

ROOT = Path(__file__).resolve().parents[2]


@cache
def pages() -> dict[str, str]:
    """They take a second to write."""
    return manual.pages()


def test_check_notices_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    loader = SourceFileLoader("build_man", str(ROOT / "scripts" / "build_man"))
    spec = spec_from_loader("build_man", loader)
    assert spec is not None
    loader.exec_module(script := module_from_spec(spec))
    monkeypatch.setattr(script, "ROOT", tmp_path)
    written = pages()
    monkeypatch.setattr(manual, "pages", lambda: dict(written))
    shutil.copytree(ROOT / "man", tmp_path / "man")
    (tmp_path / "docs").mkdir()
    for page in (manual.REFERENCE, spark_options_page.PATH):
        shutil.copy(ROOT / page, tmp_path / page)
    (tmp_path / "man" / "klog-topic.1").write_text("old")
    (tmp_path / "man" / "klog-gone.1").write_text("a noun that is no more")
    assert script.main(["--check"]) == 1
    shown = capsys.readouterr().err
    assert "klog-topic.1" in shown and "klog-gone.1" in shown
    assert script.main([]) == 0
    assert script.main(["--check"]) == 0
    assert not (tmp_path / "man" / "klog-gone.1").exists()


@each("words", [words for words, _ in walk()], ids=" ".join)
def test_every_option_and_argument_is_on_its_noun_s_page_and_in_the_reference(words: tuple[str, ...]) -> None:
    command = dict(walk())[words]
    page = pages()[f"man/klog-{words[0]}.1"].replace("\\-", "-")
    section = re.search(
        rf"^### `klog {' '.join(words)}[ `].*?(?=^##|\Z)", pages()[manual.REFERENCE], re.MULTILINE | re.DOTALL
    )
    assert section is not None
    own = [one for one in command.params if getattr(one, "rich_help_panel", None) is None]
    assert all(one.opts[-1] in section[0] for one in own if isinstance(one, TyperOption))
    for parameter in command.params:
        if isinstance(parameter, TyperOption):
            assert all(re.search(rf"(^|\s){re.escape(word)}\b", page, re.MULTILINE) for word in parameter.opts[:1])
        else:
            assert parameter.metavar and parameter.metavar in page


def test_the_overview_names_every_page_and_the_rules() -> None:
    text = pages()["man/klog.1"].replace("\\-", "-")
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


def test_klog_man_is_the_help_of_a_command_of_a_noun_and_of_all() -> None:
    ran = klog("man", "topic", "create")
    assert (ran.code, ran.stdout.strip()) == (0, klog("topic", "create", "--help").stdout.strip())
    ran = klog("man", "topics")  # by its alias
    assert ran.code == 0 and {"klog topic create", "klog topic delete"} <= {
        " ".join(line.split()[1:4]) for line in ran.stdout.splitlines() if line.startswith("Usage:")
    }
    ran = klog("man")
    assert ran.code == 0 and all(entry.name in ran.stdout for entry in ENTRIES) and "Exit codes" in ran.stdout
    for wrong, meant in (("topik",), "topic"), (("topic", "creat"), "create"):
        ran = klog("man", *wrong, "-o", "json")
        assert ran.code == 2 and meant in ran.error["message"]


def test_a_terminal_gets_the_page_that_is_there() -> None:
    assert installed_page("klog-topic.1") == ROOT / "man" / "klog-topic.1"
    assert installed_page("klog-gone.1") is None
