"""How a command goes on while it is typed, for the line below the input."""

from __future__ import annotations

from klog.admin.shell.completer import flag_awaiting_value, split_unfinished
from klog.admin.shell.own_commands import OWN
from klog.admin.shell.tree import CommandTree, command_path


def usage(tree: CommandTree, text: str) -> str:
    """The usage of the command before the cursor, or what its flag takes; "" where there is none."""
    words, unfinished = split_unfinished(text)
    if not words:
        words = [unfinished]
    if words[0] in ("klog", "help", "\\h") and len(words) > 1:
        words = words[1:]
    own = OWN.get(words[0])
    if own is not None:
        return f"{own.usage}: {own.help}"
    path = command_path(tree, [*words, unfinished])
    shape = tree.shape(path)
    if shape is None:
        verbs = tree.words_after(path) if path else []
        return f"{' '.join(path)} {'|'.join(verb.text for verb in verbs)}" if verbs else ""
    awaited = flag_awaiting_value(shape, words) or (shape.flag(unfinished) if unfinished[:1] == "-" else None)
    if awaited is not None:
        value = f" {awaited.value}" if awaited.takes_value else ""
        return f"{', '.join(awaited.words)}{value}: {awaited.help}"
    return f"{shape.usage}: {shape.help}"
