"""Style and documents as tests: what a reviewer would otherwise have to remember."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.rows import each

ROOT = Path(__file__).resolve().parent.parent.parent
TRACKED = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    if (ROOT / name).is_file()
]
MODULES = [path for path in TRACKED if path.suffix == ".py" and path.is_relative_to(ROOT / "klog")]
PAGES = [path for path in TRACKED if path.suffix == ".md"]
ROOT_ENTRIES = """
.ci .github .gitignore .pre-commit-config.yaml ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE README.md bench docs
klog man mkdocs.yml pyproject.toml pyspark_klog scripts setup.py tests
"""
"""All that a reader sees first."""


@each("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_of_one_noun(path: Path) -> None:
    assert path.stem not in ("utils", "helpers", "common", "manager", "misc")


@each("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is(path: Path) -> None:
    text = path.read_text().strip()
    assert not text or text.startswith(('"""', 'r"""')), "the first line is a docstring"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_one_title(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    assert len(re.findall(r"^# ", text, flags=re.M)) == 1


def test_only_the_file_system_makes_things_last() -> None:
    """fsync and its kin are called where a faulty double can stand in for them, and nowhere else in storage."""
    called = re.compile(r"\bos\.(fsync|fdatasync|rename|replace|truncate|ftruncate|unlink|remove)\(")
    for path in MODULES:
        if path.is_relative_to(ROOT / "klog" / "storage") and path.name != "filesystem.py":
            assert not called.search(path.read_text()), path


def test_no_test_draws_without_a_seed() -> None:
    """The same draws in every run (tests/chance.py): what fails is the code. Names may be random."""
    drawn = re.compile(
        r"\brandom\.(randrange|randint|random|choice|shuffle|randbytes|sample|uniform)\(|random\.Random\(\)"
        r"|secrets\.(randbits|choice|randbelow)|os\.urandom"
    )
    by_hand = {ROOT / "tests" / "faults" / "__main__.py", Path(__file__).resolve()}
    for path in TRACKED:
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests") and path not in by_hand:
            assert not drawn.search(path.read_text()), path


def test_every_handler_names_its_versions_first() -> None:
    for path in (ROOT / "klog" / "server" / "handlers").glob("*.py"):
        if path.name != "__init__.py":
            first = path.read_text().splitlines()[0]
            assert re.match(r'"""\w+(:? v\d| \(klog\'s own, \d+\)|: v\d)', first), f"{path.name}: {first}"


def test_the_readme_names_only_commands_that_there_are() -> None:
    from klog.cli.command_table import ENTRIES

    nouns = {entry.name for entry in ENTRIES}
    text = (ROOT / "README.md").read_text()
    for noun in re.findall(r"`klog ([a-z]+)", text):
        assert noun in nouns, noun


def test_every_script_is_executable_and_says_what_it_does() -> None:
    for path in TRACKED:
        if path.parent == ROOT / "scripts" and not path.suffix:
            assert path.stat().st_mode & 0o111, path
            assert path.read_text().startswith("#!"), path


def test_no_script_opens_its_own_output_anew() -> None:
    """`tee /dev/stderr` empties the file to which a script's output goes, and fails where that is a socket."""
    for path in TRACKED:
        if path.parent == ROOT / "scripts" and not path.suffix:
            assert not re.search(r"(?<!>)(?:>|\btee) ?(-a )?/dev/std(?:out|err)", path.read_text()), path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_installs_klog_from_an_index(path: Path) -> None:
    """It is in none: the command fails, or brings whatever somebody puts there under this name."""
    assert not re.search(r"pip install(?: -\S+)* klog(?![\[\w-])", path.read_text())


def test_the_root_holds_what_it_should_and_nothing_else() -> None:
    assert sorted({path.relative_to(ROOT).parts[0] for path in TRACKED}) == sorted(ROOT_ENTRIES.split())


def test_the_program_that_types_into_terminals_cannot_write_into_the_checkout() -> None:
    """A pager's `s` once saved a screen in the root. All processes begin in a folder that is deleted afterwards."""
    text = (ROOT / "scripts" / "pictures").read_text()
    assert "os.chdir(folder)" in text and '"LESSSECURE": "1"' in text
    assert re.findall(r"cwd=([^,]+),", text) and "cwd=ROOT" not in text


def test_the_workflow_runs_what_a_clone_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    run = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert run == {"test": ["bash .ci/run"], "all": ["scripts/test --all"]}
