"""``klog man``: the man pages, wherever klog is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import wrap

import klog
from klog.cli.command import Noun, top_command
from klog.cli.command_table import ENTRIES, entry_named
from klog.cli.flags import argument
from klog.cli.invocation import Invocation
from klog.cli.root import load, root
from klog.render.visible import is_terminal

WIDTH_MAX = 100

RULES = r"""
Which cluster: Flags (-B, -z, --profile), then KLOG_BOOTSTRAP_SERVER and KLOG_ZOOKEEPER, then KLOG_PROFILE, then the
current profile of the nearest .klog.toml from the working folder upwards, then that of profiles.toml in KLOG_HOME, then
the local cluster that `klog up` runs. Both addresses come from the same source; a missing one is looked up through the
other. If both are given, their cluster ids are compared, and a mismatch is an error.

Profiles: `klog profile add NAME -B HOST:PORT` gives a cluster a name; `klog profile use NAME` makes it the current one.
On a protected profile a command that asks wants the profile's name as the answer, and --yes needs --confirm NAME; some
commands ask there alone, such as broker restart. On a read-only profile a command that changes the cluster is refused
with exit code 2 before it sends anything. Both hold also if the cluster is given by one of the profile's addresses.

Output: Data goes to stdout; progress, questions, warnings and summaries go to stderr. Tables are aligned text, never
truncated in a pipe, with `-` for unknown values. JSON is {"_command", "_version", "rows"} with the columns as keys in
snake_case; jsonl is one row per line; TSV has a header and escapes tab, newline and backslash as \t, \n, \\. Times are
RFC 3339, UTC, with milliseconds. Errors follow the format: with json, {"_command", "error": {"code", "message",
"hint"}} on stderr.

Exit codes: 0: success. 1: the command failed, or any row failed, or a check had findings. 2: wrong usage, or
confirmation was needed and stdin is not a terminal. 130: stopped by Ctrl-C. A closed pipe ends a command with 0.

Positions: start, end, 1000 (an offset), +10 and -10 (messages from the start, before the end, of each partition),
@2026-02-01T10:00:00Z (UTC if without a zone), @-1h. A range A:B begins at A and ends before B.

Durations, sizes, rates: 500ms 10s 5m 2h 7d; 64KB 1GiB; 500/s (messages), 20MB/s.

Environment: KLOG_BOOTSTRAP_SERVER, KLOG_ZOOKEEPER, KLOG_PROFILE: the cluster. KLOG_HOME: folder of local clusters,
profiles and the shell's history (~/.klog). NO_COLOR: disables colours.
"""
"""What holds for every command: paragraphs, each with its title before the first colon."""


def command_words(incomplete: str) -> list[str]:
    """For completion: the nouns and top commands."""
    return [entry.name for entry in ENTRIES if entry.name.startswith(incomplete)]


@top_command("man", connects=False)
def man(
    invocation: Invocation,
    words: list[str] | None = argument(
        "COMMAND", "A command, such as `topic create`, or a noun.", autocompletion=command_words
    ),
) -> int:
    """Show the man page of a command; without one, what holds for all commands.

    On a terminal `man` shows the page, if it is installed; otherwise it is the command's help.
    """
    given = words or []
    entry = entry_named(given[0]) if given else None
    page = installed_page("klog.1" if entry is None else f"klog-{entry.name}.1")
    if page is not None and len(given) == (entry is not None) and is_terminal(sys.stdout) and shutil.which("man"):
        return subprocess.run(["man", str(page)], check=False).returncode
    command = load(entry) if entry is not None else None
    given[:1] = [entry.name] if entry is not None else given[:1]
    verbs = [[verb] for verb in command.commands] if isinstance(command, Noun) and len(given) == 1 else [[]]
    form = [] if invocation.shared.output is None else ["-o", invocation.shared.output.value]  # of an error
    code = 0
    for verb in verbs:
        code = code or root().execute([*given, *verb, "--help", *form])
        sys.stdout.write("\n" if verb else "")
    if not given:
        sys.stdout.write(_rules(min(shutil.get_terminal_size().columns, WIDTH_MAX)))
    return code


def installed_page(name: str) -> Path | None:
    """The page's file: of this Python, or of the checkout that klog runs from."""
    for folder in (Path(sys.prefix) / "share" / "man" / "man1", Path(klog.__file__).parent.parent / "man"):
        if (folder / name).is_file():
            return folder / name
    return None


def _rules(width: int) -> str:
    lines = []
    for paragraph in RULES.strip().split("\n\n"):
        title, _, told = paragraph.partition(":")
        text = " ".join(told.split())
        lines += ["", title, *wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)]
    return "\n".join(lines) + "\n"
