"""What a command declares besides its parameters, and its name."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from klog.cli import flags


@dataclass(frozen=True, slots=True)
class Traits:
    """What a command declares besides its parameters.

    ``rows`` is ``module:Class`` of what it shows, loaded only when needed; ``connects``: it talks to a cluster;
    ``asks``: it may ask before it acts; ``dry_run``: it has ``--dry-run`` (what asks has it in any case); ``changes``:
    it changes the cluster, where it succeeds; ``acts``: by acts that `klog undo` may take back; ``own_interrupt``: it
    handles Ctrl-C itself, ends in order and exits 0; ``output_letter``: ``-o`` is the output format (not so in
    ``tail``); ``value_optional``: flags that may come without their value, which is then empty.
    """

    rows: str | None = None
    connects: bool = True
    asks: bool = False
    dry_run: bool = False
    changes: bool = False
    acts: bool = False
    own_interrupt: bool = False
    output_letter: bool = True
    value_optional: tuple[str, ...] = ()

    def row_type(self) -> type | None:
        """The dataclass of the rows."""
        if self.rows is None:
            return None
        module, _, name = self.rows.partition(":")
        found: type = getattr(import_module(module), name)
        return found

    def common_flags(self) -> list[inspect.Parameter]:
        """The flags that the command shares with others."""
        names = [*flags.OUTPUT]
        if self.asks:
            names += "yes", "confirm"
        if self.asks or self.dry_run:
            names.append("dry_run")
        if self.connects:
            names += flags.CONNECTION
        known = flags.parameters(flags.CommonFlags)
        if not self.output_letter:
            known = {**known, "output": known["output"].replace(annotation=flags.OutputLong)}
        return [known[name] for name in names]


def command_name(ctx: typer.Context) -> str:
    """``topic.list``: the name of a command in envelopes, whatever alias was typed."""
    names = []
    current: Any = ctx
    while current is not None and current.parent is not None:
        names.append(current.command.name or "")
        current = current.parent
    return ".".join(reversed(names))
