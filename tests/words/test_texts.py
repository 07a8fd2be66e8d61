"""The sentences that users read are looked at here and nowhere else: the diff of ``texts.txt`` shows what changes."""

from __future__ import annotations

import re

from tests.rows import each
from tests.words.texts import CLASSES, SNAPSHOT, current, texts


def test_the_texts_are_those_that_were_reviewed() -> None:
    assert current() == SNAPSHOT.read_text(), "review the texts, then: python -m tests.words.texts --update"


def test_each_error_that_is_raised_by_name_has_a_text_there() -> None:
    listed = {line.split()[0] for line in SNAPSHOT.read_text().splitlines() if line and not line.startswith(" ")}
    assert len(listed & set(CLASSES)) > 50


@each(
    ("source", "expected"),
    [
        ("raise UsageError(f'{a} is b', hint='do c')", [("UsageError USAGE", "{} is b\n    hint: do c")]),
        ("raise Refused(text)", []),
        ("log.warning('%s: odd', name)", [("log warning", "%s: odd")]),
        ("raise NotLeader('a' + b)", [("NotLeader NOT_LEADER_OR_FOLLOWER", "a{}")]),
    ],
)
def test_what_is_read_of_a_module(source: str, expected: list[tuple[str, str]]) -> None:
    assert list(texts(source)) == expected


def test_a_text_is_one_sentence_without_a_full_stop() -> None:
    ended = [line for line in current().splitlines() if re.search(r"[a-z]\.$", line)]
    assert ended == []
