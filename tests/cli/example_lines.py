"""The examples of all commands, as the tests that run them need them: by line, with what each stands for."""

from __future__ import annotations

import re
import shlex

from klog.cli.examples import TEXT
from klog.cli.root import walk

COMMANDS = dict(walk())
LINES = [line.partition("  # ")[0] for line in TEXT.strip().splitlines()]


def words_of(line: str) -> tuple[str, ...]:
    """The command of a line: ``("topic", "list")``."""
    words = tuple(shlex.split(line)[1:3])
    return next(one for one in (words, words[:1]) if one in COMMANDS)


def lines_of(*commands: str) -> list[str]:
    """The examples of these commands."""
    return [line for line in LINES if " ".join(words_of(line)) in commands]


def example(line: str, **names: object) -> list[str]:
    """An example's words behind ``klog``, with the test's own names in place of some: ``clicks=topic``."""
    assert line in LINES, line
    assert all(name in line for name in names), (line, names)
    if names:  # the longest first: a folder of that name is not the name
        one_of = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        line = re.sub(rf"(?<![\w-])(?:{one_of})(?![\w-])", lambda found: str(names[found[0]]), line)
    return shlex.split(line)[1:]


IN_SPARK = "tests/spark/test_examples.py"
IN_SECURE = "tests/cli/test_up_secure.py"
IN_LOOKING = "tests/cluster/test_looking.py"

ELSEWHERE = {
    "klog produce clicks values.jsonl --schema": "tests/schemas/test_produce_by_schema.py",
    "klog up --secure -d": IN_SECURE,
    **dict.fromkeys(lines_of("security zookeeper"), IN_SECURE),
    **dict.fromkeys(lines_of("lost show", "lost replay"), IN_LOOKING),
    **dict.fromkeys(lines_of("export run", "export status", "export verify", "export list"), IN_SPARK),
    **dict.fromkeys(lines_of("export compact", "export gc", "sql"), IN_SPARK),
    **dict.fromkeys(lines_of("stream list", "stream status", "stream stop"), IN_SPARK),
    "klog stream run views.py --from 'views:json=country string' --to topic:totals": IN_SPARK,
}
"""Where an example is run that needs servers of its own."""

SERVING = [
    *lines_of("up", "down", "top", "shell", "mirror", "schema serve", "zookeeper rebuild"),
    *lines_of("broker start", "broker log", "broker stop", "broker restart"),
    *lines_of("zookeeper start", "zookeeper status", "zookeeper stop"),
    "klog tail clicks",
]
"""Parsed alone: they last until they are ended, or act on a cluster of this machine; other tests start the same
commands."""
