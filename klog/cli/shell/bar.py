"""What stands around the input: the prompt, and the line at the bottom of the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.cli.shell.cluster import ClusterFacts, WorstLag
from klog.cli.shell.shell import LastCommand
from klog.cli.target import Target
from klog.render.visible import visible

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

NAME_CHARS_MAX = 40
"""Of a cluster's or a topic's name in the prompt: the input needs the line."""
TROUBLE_CHARS_MAX = 80


def prompt(place: Target | None, facts: ClusterFacts | None, *, using: str = "") -> StyleAndTextTuples:
    """``prod 3/3 urp:0> ``; ``prod orders 2/3 urp:7> `` with a topic in use."""
    if place is None:
        return [("", "klog> ")]
    colour = f"bold ansi{place.profile.colour}" if place.profile is not None and place.profile.colour else "bold"
    parts: StyleAndTextTuples = [(colour, _short(place.name))]
    if using:
        parts.append(("", f" {_short(using)}"))
    if facts is not None and facts.trouble is None:
        parts.append(("ansired bold" if facts.live < facts.known else "", f" {facts.live}/{facts.known}"))
        parts.append(("ansired bold" if facts.under_replicated else "", f" urp:{facts.under_replicated}"))
        if facts.offline:
            parts.append(("ansired bold", f" offline:{facts.offline}"))
    elif facts is not None:
        parts.append(("ansired bold", " unreachable"))
    return [*parts, (colour, "> ")]


def toolbar(
    place: Target | None,
    facts: ClusterFacts | None,
    last: LastCommand | None,
    trouble: str = "",
    lag: WorstLag | None = None,
) -> str:
    """Controller, under-replicated partitions, worst lag, how the last command ended, and the cluster. ``trouble``
    is why there is no cluster."""
    parts = []
    if place is not None and facts is not None and facts.trouble is None:
        parts.append(f"controller {'-' if facts.controller is None else facts.controller}")
        parts.append(f"under-replicated {facts.under_replicated}")
        parts.append("worst lag -" if lag is None else f"worst lag {lag.messages:,} {_short(lag.group)}".rstrip())
    elif place is not None and facts is not None and facts.trouble is not None:
        parts.append(visible(facts.trouble.splitlines()[0])[:TROUBLE_CHARS_MAX])
    if last is not None:
        parts += [f"{last.ms:,.0f} ms", f"exit {last.status}"]
    if place is None:
        parts.append(trouble)
    else:
        if place.profile is not None:
            parts += ["protected"] * place.profile.protected + ["read-only"] * place.profile.read_only
        parts.append(f"cluster {visible(str(place))}")
    return " " + "  ".join(parts)


def _short(name: str) -> str:
    shown = visible(name)
    return shown if len(shown) <= NAME_CHARS_MAX else shown[: NAME_CHARS_MAX - 3] + "..."
