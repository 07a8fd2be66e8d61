"""The man pages and the reference of the commands, from the commands themselves.

``man/klog.1`` has what holds for every command; ``man/klog-NOUN.1`` one noun with all its verbs, or one top command;
``docs/cli-reference.md`` everything on one page. ``scripts/build_man`` writes them.

klog writes the roff itself, in 70 lines. click-man 0.6.0 was tried: it knows only the options of Click's own class, so
with Typer's commands every flag is missing; it also writes one page per command, and no columns. Typer's own generator
writes Markdown only, without columns and common flags apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from klog import __version__
from klog.cli import flags
from klog.cli.command import KlogCommand, Noun, arguments, help_record, usage_of
from klog.cli.command_table import ENTRIES, Entry
from klog.cli.examples import Example, examples_of
from klog.cli.man import RULES
from klog.cli.root import ABOUT, load, root, walk
from klog.render.columns import can_fail, columns
from scripts.manual import metrics_page, permissions_page, requests_page, settings_page

REFERENCE = "docs/cli-reference.md"


@dataclass(frozen=True, slots=True)
class Page:
    """One command as both forms of the manual need it; flags and arguments are (what is typed, what it means)."""

    name: str
    usage: str
    summary: str
    text: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    own_flags: tuple[tuple[str, str], ...]
    global_flags: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    examples: tuple[Example, ...]


def page(words: tuple[str, ...], command: KlogCommand) -> Page:
    """What the manual says of one command."""
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.params:
        record = help_record(parameter)
        if record is None or parameter.param_type_name == "argument":
            continue
        group = shared if getattr(parameter, "rich_help_panel", None) == flags.GLOBAL_PANEL else own
        group.append(record)
    paragraphs = tuple(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    name = " ".join(("klog", *words))
    usage = " ".join([name, *(usage_of(argument) for argument in arguments(command)), "[FLAGS]"])
    records = [help_record(argument) for argument in arguments(command)]
    row_type = command.traits.row_type()
    shown = [] if row_type is None else columns(row_type)
    heads = [f"{column.head}*" if column.wide else column.head for column in shown]
    if row_type is not None and can_fail(row_type):
        heads = heads[:-2] + [f"{head}†" for head in heads[-2:]]
    return Page(
        name,
        usage,
        paragraphs[0],
        paragraphs,
        tuple(record for record in records if record is not None),
        tuple(own),
        tuple(shared),
        tuple(heads),
        examples_of(words),
    )


def entry_pages(entry: Entry) -> list[Page]:
    """The commands of a noun, or the one command at the top."""
    command = load(entry)
    if isinstance(command, Noun):
        return [
            page((entry.name, verb), child)
            for verb, child in command.commands.items()
            if isinstance(child, KlogCommand)
        ]
    assert isinstance(command, KlogCommand)
    return [page((entry.name,), command)]


def pages() -> dict[str, str]:
    """Every generated file: its path in the repository -> its text."""
    found = {"man/klog.1": overview()}
    for entry in ENTRIES:
        found[f"man/klog-{entry.name}.1"] = man_page(entry)
    found[REFERENCE] = _reference()
    found[settings_page.PATH] = settings_page.page()
    found[metrics_page.PATH] = metrics_page.page()
    found[requests_page.PATH] = requests_page.page()
    found[permissions_page.PATH] = permissions_page.page()
    return found


# --- man --------------------------------------------------------------------------------------------------------------


def overview() -> str:
    """``klog.1``."""
    lines = [*_man_head("klog", "a distributed log")]
    lines += [".SH SYNOPSIS", ".B klog", "NOUN VERB [ARGUMENTS] [FLAGS]", ".SH DESCRIPTION"]
    lines += _man_paragraphs(" ".join(part.split()) for part in ABOUT.strip().split("\n\n"))
    for section in dict.fromkeys(entry.section for entry in ENTRIES):
        lines += [f".SH {section.upper()}"]
        for entry in ENTRIES:
            if entry.section == section:
                lines += [".TP", f".BR klog-{entry.name} (1)", _roff(entry.help)]
    lines += [".SH COMMON FLAGS", *_man_records(_root_flags())]
    for title, text in _rules():
        lines += [f".SH {title.upper()}", _roff(text)]
    return "\n".join(lines) + "\n"


def man_page(entry: Entry) -> str:
    """``klog-NOUN.1``."""
    described = entry_pages(entry)
    lines = [*_man_head(f"klog-{entry.name}", entry.help.rstrip("."))]
    lines += [".SH SYNOPSIS"]
    for one in described:
        lines += [f".B {_roff(one.usage)}", ".br"]
    if len(described) == 1:
        lines += [".SH DESCRIPTION", *_man_command(described[0])]
    else:
        for one in described:
            lines += [f".SH {_roff(one.name.upper())}", *_man_command(one)]
    lines += [
        ".SH SEE ALSO",
        ".BR klog (1)",
        "for common flags, exit codes, positions and output formats.",
    ]
    return "\n".join(lines) + "\n"


def _man_command(one: Page) -> Iterator[str]:
    yield from _man_paragraphs(one.text)
    yield from _man_records((*one.arguments, *one.own_flags))
    if one.columns:
        yield ".PP"
        yield _roff("Columns: " + " ".join(one.columns) + _column_notes(one))
    yield from _man_examples(one.examples)
    common = ", ".join(left.split(" ")[0].rstrip(",") for left, _ in one.global_flags)
    yield ".PP"
    yield _roff(f"Common flags: {common}.")


def _man_examples(examples: Iterable[Example]) -> Iterator[str]:
    for number, one in enumerate(examples):
        yield ".PP"
        yield from (("Examples:", ".PP") if not number else ())
        yield _roff(one.purpose)
        yield from (".RS", ".nf", _roff(one.line), ".fi", ".RE")


def _man_head(name: str, summary: str) -> Iterator[str]:
    yield '.\\" Written by scripts/build_man from the commands; do not edit.'
    yield f'.TH {name.upper()} 1 "" "klog {__version__}" "klog"'
    yield ".SH NAME"
    yield _roff(f"{name} - {summary}")


def _man_paragraphs(paragraphs: Iterable[str]) -> Iterator[str]:
    for index, text in enumerate(paragraphs):
        if index:
            yield ".PP"
        yield _roff(text)


def _man_records(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for left, right in records:
        yield ".TP"
        yield f".B {_roff(left)}"
        yield _roff(right)


def _roff(text: str) -> str:
    """Text in which roff finds nothing to obey."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("†", "\\[dg]")
    escaped = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _reference() -> str:
    lines = [
        "<!-- Written by scripts/build_man from the commands; do not edit. -->",
        "# Commands",
        "",
        "Every command of klog, its flags and columns. A column with `*` is shown only with `-o wide` and in machine",
        "formats; one with `†` is shown in tables if a row has failed.",
        "",
    ]
    for entry in ENTRIES:
        lines += [f"- [{entry.name}](#klog-{entry.name}): {entry.help}"]
    lines += ["", "## For every command", ""]
    for title, text in _rules():
        lines += [f"**{title}.** {_markdown(text)}", ""]
    lines += ["| flag | |", "|---|---|", *_table(_root_flags()), ""]
    for entry in ENTRIES:
        lines += [f"## klog {entry.name}", "", entry.help, ""]
        for one in entry_pages(entry):
            lines += _section(one)
    return "\n".join(lines).rstrip() + "\n"


def _section(one: Page) -> Iterator[str]:
    yield f"### `{one.usage}`"
    yield ""
    for text in one.text:
        yield _markdown(text)
        yield ""
    dry_run = (record for record in one.global_flags if record[0].startswith("--dry-run"))  # not every command has it
    records = (*one.arguments, *one.own_flags, *dry_run)
    if records:
        yield "| | |"
        yield "|---|---|"
        yield from _table(records)
        yield ""
    if one.columns:
        yield f"Columns: {' '.join(f'`{head}`' for head in one.columns)}"
        yield ""
    if one.examples:
        yield "```sh"
        yield from (f"{example.line}  # {example.purpose}" for example in one.examples)
        yield "```"
        yield ""


def _table(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for left, right in records:
        yield f"| `{left.replace('|', chr(92) + '|')}` | {_markdown(right).replace('|', chr(92) + '|')} |"


def _markdown(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def _rules() -> Iterator[tuple[str, str]]:
    for paragraph in RULES.strip().split("\n\n"):
        title, _, text = paragraph.partition(":")
        yield title, " ".join(text.split())


def _root_flags() -> list[tuple[str, str]]:
    """The flags that may stand before the noun, and those of commands that ask, taken from one of them."""
    asking = next(command for _, command in walk() if command.traits.asks)
    asked = [parameter for parameter in asking.params if parameter.name in ("yes", "confirm", "dry_run")]
    before = [record for parameter in root().params if (record := help_record(parameter)) is not None]
    have = {"yes": "commands that ask", "confirm": "commands that ask", "dry_run": "commands that ask, and some others"}
    return before + [
        (record[0], f"{record[1]} Only {have[str(parameter.name)]}.")
        for parameter in asked
        if (record := help_record(parameter)) is not None
    ]


def _column_notes(one: Page) -> str:
    notes = []
    if any(head.endswith("*") for head in one.columns):
        notes.append("* only with -o wide and in machine formats")
    if any(head.endswith("†") for head in one.columns):
        notes.append("† in tables if a row has failed")
    return f" ({'; '.join(notes)})" if notes else ""
