"""What a line means before it is run: the words that are wrong, and the usage of its command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from klog.admin.shell.catalog import LiveCatalog
from klog.admin.shell.completer import flag_awaiting_value, split_unfinished
from klog.admin.shell.own_commands import LEAVE, OWN
from klog.admin.shell.syntax import Statement, Word, statements
from klog.admin.shell.tree import CommandShape, CommandTree, Kind, command_path
from klog.admin.shell.using import Using, is_left_out, positional
from klog.names import near_hint

NAMED_MUST_EXIST = frozenset({"TOPIC", "GROUP"})
"""Arguments that name what there is; others may name what is to be made."""

_PATTERN = frozenset("*?[]()|\\^$,/")


class WrongWord(NamedTuple):
    """A word that the command would refuse, and why."""

    start: int
    end: int
    why: str


class LineCheck:
    """Looks at lines. Asks a cluster nothing: names that are not known yet are not judged."""

    def __init__(
        self,
        tree: CommandTree,
        names: LiveCatalog,
        *,
        using: Callable[[], Using | None] = lambda: None,
    ) -> None:
        self._tree = tree
        self._names = names
        self._using = using

    def wrong_words(self, text: str, cursor: int | None = None) -> list[WrongWord]:
        """The first wrong word of each statement. The word at the cursor may still become right."""
        found = (self._wrong_in(statement, -1 if cursor is None else cursor) for statement in statements(text))
        return [word for word in found if word is not None]

    def usage(self, text: str) -> str:
        """How the command before the cursor goes on: its usage, or what the flag takes; "" where there is none."""
        words, unfinished = split_unfinished(text)
        if not words:
            words = [unfinished]
        if words[0] in ("klog", "help", "\\h") and len(words) > 1:
            words = words[1:]
        own = OWN.get(words[0])
        if own is not None:
            return f"{own.usage}: {own.help}"
        whole = [*words, unfinished]
        path = command_path(self._tree, whole)
        shape = self._tree.shape(path)
        if shape is None:
            verbs = self._tree.words_after(path) if path else []
            return f"{' '.join(path)} {'|'.join(verb.text for verb in verbs)}" if verbs else ""
        awaited = flag_awaiting_value(shape, words) or (shape.flag(unfinished) if unfinished[:1] == "-" else None)
        if awaited is not None:
            value = f" {awaited.value}" if awaited.takes_value else ""
            return f"{', '.join(awaited.words)}{value}: {awaited.help}"
        return f"{shape.usage}: {shape.help}"

    def _wrong_in(self, statement: Statement, cursor: int) -> WrongWord | None:
        words = [word for word in statement.words if not (word.own and word.text == "\\watch")]
        if len(words) < len(statement.words):
            words = words[: next(index for index, word in enumerate(statement.words) if word.text == "\\watch")]
        if words and words[0].text in ("klog", "help", "\\h"):
            words = words[1:]
        if not words or words[0].text in LEAVE or words[0].text in OWN:
            return None
        path = command_path(self._tree, [word.text for word in words])
        shape = self._tree.shape(path)
        if shape is None:
            return self._wrong_name(words, path, cursor)
        return next(self._wrong_behind(words[len(path) :], shape, path, cursor), None)

    def _wrong_name(self, words: list[Word], path: tuple[str, ...], cursor: int) -> WrongWord | None:
        if len(path) == len(words) or words[len(path)].text.startswith("-"):
            return None
        word = words[len(path)]
        known = [one.text for one in self._tree.words_after(path)]
        if not path:
            known += [*OWN, *LEAVE]
        if word.end == cursor and any(one.startswith(word.text) for one in known):
            return None
        near = get_close_matches(word.text, known, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return WrongWord(word.start, word.end, f"{' '.join(path) or 'klog'} has no command {word.text!r}{hint}")

    def _wrong_behind(
        self, words: list[Word], shape: CommandShape, path: tuple[str, ...], cursor: int
    ) -> Iterator[WrongWord]:
        for index, word in enumerate(words):
            before = [one.text for one in words[:index]]
            if "--" in before or word.text == "--":
                return
            awaited = flag_awaiting_value(shape, before)
            choices: tuple[str, ...] = ()
            if awaited is not None:
                choices = awaited.choices
            elif word.text.startswith("-") and len(word.text) > 1 and not word.text[1:2].isdigit():
                if not self._is_flag(word, shape, cursor):
                    near = get_close_matches(word.text, [one for flag in shape.flags for one in flag.words], n=1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    yield WrongWord(word.start, word.end, f"{' '.join(path)} has no flag {word.text}{hint}")
            else:
                if is_left_out(path, shape, self._using()):
                    continue  # the word may be this argument, or the next one
                argument = shape.argument(len(positional(before, shape)))
                if argument is None:
                    yield WrongWord(word.start, word.end, f"one word too many: {shape.usage}")
                    return
                choices = argument.choices
                if argument.name in NAMED_MUST_EXIST and not self._may_exist(argument.kind, word, cursor):
                    meant = near_hint(word.text, self._names.now(argument.kind), "")
                    hint = f"; {meant}" if meant else ""
                    yield WrongWord(word.start, word.end, f"there is no {argument.kind} {word.text!r}{hint}")
            if choices and word.text not in choices and not _may_become(word, choices, cursor):
                yield WrongWord(word.start, word.end, f"must be one of {', '.join(choices)}, got {word.text!r}")

    def _is_flag(self, word: Word, shape: CommandShape, cursor: int) -> bool:
        known = [one for flag in shape.flags for one in flag.words]
        if word.text.startswith("--"):
            name = word.text.partition("=")[0]
            return name in known or (word.end == cursor and any(one.startswith(name) for one in known))
        return word.text[:2] in known

    def _may_exist(self, kind: Kind, word: Word, cursor: int) -> bool:
        names = self._names.now(kind)
        if not names or word.text in names or set(word.text) & _PATTERN:
            return True
        return _may_become(word, names, cursor)


def _may_become(word: Word, known: tuple[str, ...], cursor: int) -> bool:
    return word.end == cursor and any(one.startswith(word.text) for one in known)
