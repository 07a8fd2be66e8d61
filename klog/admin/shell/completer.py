"""What Tab offers: commands, then their flags, the values of flags, topics, groups."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from klog.admin.shell.live_names import LiveNames
from klog.admin.shell.tree import CommandShape, CommandTree, Flag, Suggestion
from klog.render.visible import visible

BUILT_IN = (Suggestion("help", "Show the commands, or the help of one."), Suggestion("exit", "Exit the shell."))


class KlogCompleter(Completer):
    """Completes from the command tree and the live topics and groups. Never asks a broker itself."""

    def __init__(self, tree: CommandTree, topics: LiveNames, groups: LiveNames | None = None) -> None:
        self._tree = tree
        self._topics = topics
        self._groups = groups
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        words, unfinished = split_unfinished(document.text_before_cursor)
        for candidate in self.candidates(words, unfinished):
            yield Completion(
                candidate.text,
                start_position=-len(unfinished),
                display=visible(candidate.text),
                display_meta=visible(candidate.help),
            )
        shape = self._tree.shape(self._path(words))
        if shape is not None and shape.names_files and not unfinished.startswith("-"):
            yield from self._files.get_completions(Document(unfinished), complete_event)

    def candidates(self, words: list[str], unfinished: str) -> list[Suggestion]:
        """What may stand behind ``words`` and begins with ``unfinished``."""
        return [word for word in self._next(words, unfinished) if word.text.startswith(unfinished)]

    def _next(self, words: list[str], unfinished: str) -> Iterator[Suggestion]:
        if words[:1] in (["klog"], ["help"]):
            words = words[1:]
        path = self._path(words)
        shape = self._tree.shape(path)
        if shape is None:
            if len(path) == len(words):
                yield from self._tree.words_after(path)
                if not path:
                    yield from BUILT_IN
            return
        awaited = _flag_awaiting_value(shape, words)
        if awaited is not None:
            yield from (Suggestion(choice, "") for choice in awaited.choices)
        elif unfinished.startswith("-"):
            for flag in shape.flags:
                yield from (Suggestion(text, flag.help) for text in flag.words)
        elif shape.names_topics:
            yield from (Suggestion(name, "topic") for name in self._topics.now())
        elif shape.names_groups and self._groups is not None:
            yield from (Suggestion(name, "group") for name in self._groups.now())

    def _path(self, words: list[str]) -> tuple[str, ...]:
        """The leading words that name a noun or a command."""
        path: tuple[str, ...] = ()
        for word in words:
            if self._tree.shape(path) is not None or word not in {known.text for known in self._tree.words_after(path)}:
                break
            path = (*path, word)
        return path


def split_unfinished(text: str) -> tuple[list[str], str]:
    """The whole words before the cursor, and the one that is being written, maybe empty; open quotes are forgiven."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(text + closing)
            break
        except ValueError:
            continue
    else:
        words = text.split()
    if not text or text[-1].isspace() or not words:
        return words, ""
    return words[:-1], words[-1]


def _flag_awaiting_value(shape: CommandShape, words: list[str]) -> Flag | None:
    for flag in shape.flags:
        if words and words[-1] in flag.words and flag.takes_value:
            return flag
    return None
