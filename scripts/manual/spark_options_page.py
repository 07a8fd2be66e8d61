"""The table of options in ``docs/pipeline.md``, the only part of a page that is written by ``scripts/build_man``."""

from __future__ import annotations

from klog.spark.option_table import OPTIONS

PATH = "docs/pipeline.md"

_BEGIN = "<!-- options: scripts/build_man -->\n"
_END = "<!-- end of options -->\n"


def with_table(page: str) -> str:
    """The page with the table as the code has it. ValueError where the page lacks the marks around it."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PATH}: the lines {_BEGIN!r} and {_END!r} are missing")
    lines = ["| option | queries | beside the connector | default | |", "|---|---|---|---|---|"]
    for one in OPTIONS:
        text = one.text.replace("|", "\\|")
        lines.append(f"| `{one.name}` | {', '.join(one.where)} | {one.beside} | {one.default} | {text} |")
    table = "\n".join(lines)
    return f"{before}{begin}{table}\n{end}{after}"
