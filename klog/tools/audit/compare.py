"""What producers sent beside what a tier holds, a window at a time. Pure: no clock, no cluster.

Rules
    * Missing: what producers say was acknowledged and is not there. Unknown ones (no answer came) are never missing.
    * Extra: copies of messages that are there already, and what a producer that has finished says nothing of. Where the
      messages were read, a lost one and a doubled one of the same window are both seen; where they were only counted,
      they would hide each other.
    * A window is judged when it is over, by a while (``grace``) more, at the tier's own state of knowledge. What a
      producer has not finished (it died, or its clock is elsewhere) counts as missing where it lacks, never as extra.
    * Messages without a stamp belong to no producer: counted, and not judged.
    * What retention was to remove by now is not judged by what is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from klog.names import counted
from klog.tools.audit.ledger import Produced
from klog.tools.audit.tally import UNSTAMPED, Found, Origin


class State(StrEnum):
    """The verdict on a window of a tier."""

    OK = "ok"
    GAP = "gap"
    OPEN = "open"
    UNFINISHED = "unfinished"
    EXPIRED = "expired"
    EARLIER = "earlier"
    SENT = "sent"
    COUNTED = "counted"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``missing`` and ``extra`` are None where it is not for us to judge.

    ``producers``: those that differ, by their hosts, as "web-1 -17 +3": 17 are missing, 3 are there beyond those sent.
    """

    messages: int | None
    missing: int | None
    extra: int | None
    state: State
    producers: tuple[str, ...] = ()
    note: str | None = None
    counted: str | None = None
    """By what: see `AuditRow`. Who asks for the judgement knows it."""


def sent(produced: Mapping[Origin, Produced], *, is_open: bool) -> Judgement:
    """What producers say of a window: the measure, not judged itself."""
    total = sum(one.messages for one in produced.values())
    unknown = sum(one.unknown for one in produced.values())
    unfinished = {origin.host for origin, one in produced.items() if not one.is_final}
    note = f"{unknown} more may be in the log: the broker did not answer" if unknown else None
    if is_open:
        return Judgement(total, None, None, State.OPEN, note=note)
    if unfinished:
        said = _not_finished(unfinished)
        return Judgement(total, None, None, State.UNFINISHED, note=f"{note}; {said}" if note else said)
    return Judgement(total, None, None, State.SENT, note=note)


def by_number(produced: Mapping[Origin, Produced], messages: int) -> Judgement:
    """Judge a count alone, of messages of all kinds."""
    least = sum(one.messages for one in produced.values())
    most = least + sum(one.unknown for one in produced.values())
    missing, extra = max(least - messages, 0), max(messages - most, 0)
    if extra and not missing and not all(one.is_final for one in produced.values()):
        return Judgement(messages, 0, 0, State.UNFINISHED)
    return Judgement(messages, missing, extra, State.GAP if missing or extra else State.OK)


def by_stamps(
    produced: Mapping[Origin, Produced], found: Mapping[Origin, Found], publishers: Mapping[Origin, int]
) -> Judgement:
    """Judge what was read. ``publishers``: all who have ever published anything."""
    missing = extra = 0
    gaps: list[str] = []
    notes: list[str] = []
    unfinished: set[str] = set()
    for origin in sorted(produced.keys() | found.keys()):
        there = found.get(origin) or Found()
        if origin == UNSTAMPED:
            notes.append(f"{counted(there.messages, 'message')} without a stamp")
            continue
        said = produced.get(origin) or Produced(is_final=origin in publishers)
        lacking = max(said.messages - there.distinct, 0)
        surplus = there.doubled
        if said.is_final:
            surplus += max(there.distinct - said.messages - said.unknown, 0)
        else:
            unfinished.add(origin.host)
        if lacking or surplus:
            gaps.append(origin.host + (f" -{lacking}" if lacking else "") + (f" +{surplus}" if surplus else ""))
        missing += lacking
        extra += surplus
    if unfinished:
        notes.append(_not_finished(unfinished))
    state = State.GAP if missing or extra else State.UNFINISHED if unfinished else State.OK
    messages = sum(one.messages for origin, one in found.items() if origin != UNSTAMPED)
    return Judgement(messages, missing, extra, state, tuple(gaps), "; ".join(notes) or None)


def _not_finished(hosts: Collection[str]) -> str:
    return f"not finished by {', '.join(sorted(hosts))}"
