"""What may stand next in a query of `klog sql`: words of SQL, topics, and columns of the topics that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.names import name_in_program

KEYWORDS: Final = (
    *("select", "from", "where", "and", "or", "not", "in", "like", "between", "is", "null", "as", "on", "join"),
    *("left", "group", "by", "order", "having", "limit", "distinct", "case", "when", "then", "else", "end", "desc"),
    *("count(*)", "sum(", "avg(", "min(", "max(", "interval", "now()", "cast(", "window(", "timestamp"),
)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FROM: Final = re.compile(r"--from[ =](?:'([^']*)'|\"([^\"]*)\"|(\S+))")
_TEXT: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAMES_FOLLOW: Final = re.compile(r"\b(?:from|join)\s+\Z|\bfrom\s[^()]*,\s*\Z", re.IGNORECASE)


class Suggestion(NamedTuple):
    """A word that may stand next, and what it is."""

    text: str
    help: str


def unfinished_word(query: str) -> str:
    """The word before the cursor."""
    found = _WORD.search(query)
    return "" if found is None else found[0]


def forms_in(line: str) -> dict[str, str]:
    """By the topic's name in a query: what the ``--from`` of a line say of it."""
    given = (found[1] or found[2] or found[3] for found in _FROM.finditer(line))
    return {name_in_program(one.partition(":")[0]): one for one in given}


def names_in(query: str, topics: Sequence[str]) -> list[str]:
    """The topics of a query."""
    words = set(_NAME.findall(_TEXT.sub(" ", query)))
    return [name for name in topics if name in words]


def next_words(query: str, topics: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Iterator[Suggestion]:
    """What begins with the unfinished word, in any case. ``columns``: of each topic that the query names."""
    if {"'", '"'} & set(_TEXT.sub("", query)):
        return  # within a text
    word = unfinished_word(query)
    before = query[: len(query) - len(word)]
    if _NAMES_FOLLOW.search(_TEXT.sub("''", before)):
        found = [Suggestion(name, "topic") for name in topics]
    else:
        from klog.streams.columns import COLUMNS

        found = [Suggestion(name, f"column of {topic}") for topic, names in columns.items() for name in names]
        found += [Suggestion(name, "column") for name in (COLUMNS if not columns else ())]
        found += [Suggestion(text.upper() if word.isupper() else text, "SQL") for text in KEYWORDS]
    seen = set()
    for one in found:
        if one.text.lower().startswith(word.lower()) and one.text not in seen:
            seen.add(one.text)
            yield one
