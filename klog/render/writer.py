"""The one renderer: a report, a format and a stream."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TextIO, cast

from klog.render.columns import Column, columns, has_failed, shown_columns
from klog.render.fitting import cells, fit
from klog.render.report import ENVELOPE_VERSION, Format, Report
from klog.render.values import to_cell, to_json, to_tsv
from klog.render.visible import VisibleText

COLUMN_GAP = "  "
MAX_WIDTH = 1 << 20

_NO_TEXT = re.compile(
    r"[-+]?(?:0[xob][0-9a-f_]+|(?=[.0-9])[0-9_,]*\.?[0-9._]*(?:e[-+]?[0-9_]+)?|nan|infinity)|y|n", re.IGNORECASE
)
"""What some reader of YAML 1.1, YAML 1.2 or JSON takes for a number or a truth."""


def render(report: Report, form: Format, out: TextIO, *, header: bool = True, terminal: bool = False) -> bool:
    """Write the report's rows to ``out``; whether any of them had failed.

    ``terminal`` allows colour and folding to the width of the screen; without it a table is plain aligned text, each
    line as long as it needs to be. Nothing that a row holds commands a terminal. ``header`` is about tables and TSV.
    """
    watched = _Watched(report.rows)
    if terminal and form not in (Format.TABLE, Format.WIDE):  # a table's cells are never anything but text
        out = cast(TextIO, VisibleText(out, json=form in (Format.JSON, Format.JSONL)))
    report = replace(report, rows=watched)
    match form:
        case Format.JSON:
            _write_json(report, out)
        case Format.JSONL:
            out.writelines(map(json_line, report.rows))
        case Format.YAML:
            out.write(yaml_text({**_about(report), "rows": list(map(row_object, report.rows))}))
        case Format.TSV:
            _write_tsv(report, out, header)
        case _:
            _write_aligned(report, out, header, terminal, wide=form is Format.WIDE)
    return watched.any_failed


class _Watched:
    """Rows on their way to a writer, read once."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows
        self.any_failed = False

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows:
            self.any_failed = self.any_failed or has_failed(row)
            yield row


def row_object(row: Any) -> dict[str, Any]:
    """A row as JSON's object: every column, in order."""
    row_type: type = type(row)
    return {column.name: to_json(getattr(row, column.field)) for column in columns(row_type)}


def json_line(row: Any) -> str:
    """A row as one line of JSON Lines, its newline with it."""
    return json.dumps(row_object(row), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _about(report: Report) -> dict[str, Any]:
    """The object that JSON and YAML show, but for its rows."""
    return {"_command": report.command, "_version": ENVELOPE_VERSION, **report.about}


def yaml_text(data: Any) -> str:
    """Data as YAML, keys in their order."""
    import yaml  # 20 ms that only -o yaml pays

    class Dumper(yaml.SafeDumper):
        """Writes a text with a line break of Unicode's in quotes, escaped: as it stands, it is read back as a space.

        PyYAML itself puts in quotes what readers of YAML 1.1 would take for something else, as far as it does so.
        """

    def text_node(dumper: Dumper, text: str) -> yaml.Node:
        style = '"' if any(break_ in text for break_ in "\x85\u2028\u2029") else None
        if _NO_TEXT.fullmatch(text):
            style = "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_node)
    written: str = yaml.dump(
        data, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**31
    )
    return written


def _write_json(report: Report, out: TextIO) -> None:
    # One row a line: still one JSON document, and one that diff, head and a person can read.
    dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    about = ", ".join(f"{dump(name)}: {dump(value)}" for name, value in _about(report).items())
    out.write("{" + about + ', "rows": [')
    index = -1
    for index, row in enumerate(report.rows):
        out.write(("," if index else "") + "\n  " + dump(row_object(row)))
    out.write("\n]}\n" if index >= 0 else "]}\n")


def _write_tsv(report: Report, out: TextIO, header: bool) -> None:
    shown = columns(report.row_type)
    if header:
        out.write("\t".join(column.head for column in shown) + "\n")
    for row in report.rows:
        out.write("\t".join(to_tsv(getattr(row, column.field)) for column in shown) + "\n")


def _write_aligned(report: Report, out: TextIO, header: bool, terminal: bool, *, wide: bool) -> None:
    rows = list(report.rows)
    shown = shown_columns(report.row_type, rows, wide=wide)
    texts = [[to_cell(getattr(row, column.field)) for column in shown] for row in rows]
    if not terminal:
        heads = [[column.head for column in shown]] if header else []
        out.writelines(line + "\n" for line in _aligned(shown, heads + texts))
        return
    fitted = fit(shown, texts, MAX_WIDTH if wide else shutil.get_terminal_size().columns)
    lines, styles = ([fitted.heads], ["bold"]) if header else ([], [])
    for row, cell_lines in zip(rows, fitted.rows, strict=True):
        broken = list(zip_longest(*cell_lines, fillvalue=""))
        lines += map(list, broken)
        styles += ["red" if has_failed(row) else ""] * len(broken)
    write_styled(_aligned(fitted.columns, lines), styles, out)
    report.left_out.extend(fitted.left_out)


def _aligned(shown: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[str]:
    """Each line's cells under one another, numbers to the right."""
    sizes = [[cells(cell) for cell in line] for line in lines]
    widths = [max(column, default=0) for column in zip(*sizes, strict=True)]
    aligned = []
    for line, own in zip(lines, sizes, strict=True):
        padded = []
        for column, cell, size, width in zip(shown, line, own, widths, strict=True):
            gap = " " * (width - size)
            padded.append(gap + cell if column.numeric else cell + gap)
        aligned.append(COLUMN_GAP.join(padded).rstrip())
    return aligned


def write_styled(lines: Sequence[str], styles: Sequence[str], out: TextIO) -> None:
    """The same lines in colour, where the terminal has any and NO_COLOR does not forbid it, which rich knows.

    A line longer than the screen goes on in the next: rich's own tables would cut cells, or words, to fit.
    """
    from rich.console import Console  # 40 ms that only a terminal pays
    from rich.text import Text

    console = Console(file=out, highlight=False)
    for line, style in zip(lines, styles, strict=True):
        # Text, not str: rich would read "[bold]" in a value as its own markup.
        console.print(Text(line, style=style), soft_wrap=True)
