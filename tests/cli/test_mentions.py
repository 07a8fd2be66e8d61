"""Whatever klog tells a person to type, in hints and documents, is a command that there is, with flags that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from klog.cli.command import VERB_ALIASES
from klog.cli.command_table import entry_named
from klog.cli.other_words import GONE, renamed
from klog.cli.root import root, walk
from tests.rows import each

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = dict(walk())
MENTION = re.compile(r"`klog ((?:[a-z]|-)[^`\n]*)`")
WALKS = ("quickstart", "tour-cluster", "tour-consumers", "tour-pipeline")
SOURCES = [
    *sorted((ROOT / "klog").rglob("*.py")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / "scripts" / name for name in WALKS),
]


def mentions() -> Iterator[tuple[str, str]]:
    """(file, words behind ``klog``) of each mention in backticks, and of each line that a walk runs."""
    for path in SOURCES:
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        for found in MENTION.finditer(text):
            yield str(path.relative_to(ROOT)), found[1]
        if path.name in WALKS:
            for line in re.findall(r"^run klog (.*)$", text, re.MULTILINE):
                yield str(path.relative_to(ROOT)), line


@each(("file", "line"), sorted(set(mentions())))
def test_what_is_mentioned_can_be_typed(file: str, line: str) -> None:
    words = line.replace("\\|", "/").replace("|", "/").split()  # tables list verbs so
    if file == "CHANGELOG.md":  # it tells of the words that were
        words = renamed(words)
        if any(f"{words[0]} {verb}".strip() in GONE for verb in ("", *"".join(words[1:2]).split("/"))):
            return
    if words[0].startswith("-"):
        known = {word for parameter in root().params for word in parameter.opts} | {"--help"}
        assert words[0] in known
        return
    if words[0].isupper():
        return  # `klog NOUN VERB`
    entry = entry_named(words[0])
    assert entry is not None, f"{file} mentions klog {line}: there is no {words[0]}"
    path: tuple[str, ...] = (entry.name,)
    if path not in COMMANDS:
        if len(words) == 1 or words[1].startswith("-") or words[1].isupper():
            return  # the noun itself
        verbs = words[1].split("/")
        for verb in verbs:
            assert (entry.name, VERB_ALIASES.get(verb, verb)) in COMMANDS or (entry.name, verb) in COMMANDS, (
                f"{file} mentions klog {line}: {entry.name} has no {verb}"
            )
        path = (entry.name, VERB_ALIASES.get(verbs[0], verbs[0]))
        if path not in COMMANDS:
            path = (entry.name, verbs[0])
    flags = [(*one.opts, *one.secondary_opts) for one in COMMANDS[path].params]
    known = {word for words_of_one in flags for word in words_of_one} | {"-h", "--help"}
    for word in words[len(path) :]:
        flag = word.partition("=")[0]
        if re.fullmatch(r"--?[A-Za-z][a-z-]*", flag):
            assert flag in known or flag[:2] in known, f"{file} mentions klog {line}: it has no {flag}"


def test_mentions_are_found() -> None:
    assert len(set(mentions())) > 20
