"""How the input looks: wrong words are underlined."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.application import get_app
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from klog.admin.shell.checking import LineCheck, WrongWord

WRONG = "underline ansired"


class WrongWordLexer(Lexer):
    """Underlines what `LineCheck` finds."""

    def __init__(self, check: LineCheck) -> None:
        self._check = check

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The styled text of each line."""
        cursor = get_app().current_buffer.cursor_position
        wrong = self._check.wrong_words(document.text, cursor)
        starts = [0]
        for line in document.lines:
            starts.append(starts[-1] + len(line) + 1)
        return lambda number: _styled(document.lines[number], starts[number], wrong)

    def invalidation_hash(self) -> object:
        """Another one after each key: a word is judged again once the cursor has left it."""
        buffer = get_app().current_buffer
        return buffer.text, buffer.cursor_position


def _styled(line: str, start: int, wrong: list[WrongWord]) -> StyleAndTextTuples:
    parts: StyleAndTextTuples = []
    at = 0
    for word in wrong:
        begin, end = max(word.start - start, at), min(word.end - start, len(line))
        if begin < end:
            parts += [("", line[at:begin]), (WRONG, line[begin:end])]
            at = end
    return [*parts, ("", line[at:])]
