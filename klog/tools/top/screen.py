"""The screen of `klog top`, as lines of styled text. Pure: facts and keys in, lines out.

Panes stand below one another: brokers, topics, partitions in trouble, groups, events. Each has a row for its heads; the
pane that the arrow keys move in gets the most rows. Enter goes deeper into the chosen row, and so does ``w``, into its
reason. Whatever a cluster says is shown as text (`klog.render.visible`), cut to the width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klog.admin.health.verdict import AT_RISK, BROKEN, DOWN
from klog.render.fitting import cells, cut, pad
from klog.render.value_texts import count_text, duration_text, size_text
from klog.render.visible import visible
from klog.tools.events import Event, numbers_text, row
from klog.tools.top.facts import GroupLine, TopTick

Fragment = tuple[str, str]
"""A style (of prompt_toolkit's names) and a text."""
Line = list[Fragment]

FELT: Final = (DOWN, BROKEN, AT_RISK)
_MOVES = frozenset({"up", "k", "down", "j", "pageup", "pagedown", "home", "end"})
WIDTH_MIN, HEIGHT_MIN = 40, 10
OPEN_MIN = 12
"""Of the column that has the rest of the line."""
HEADS, BAD, DIM, CHOSEN, TITLE = "bold reverse", "ansired bold", "ansibrightblack", "reverse", "bold"

HELP: Final = (
    "Tab, Shift-Tab      the next and the previous pane",
    "Up, Down, PgUp,     choose a row",
    "PgDn, Home, End",
    "Enter               go deeper: a broker's metrics, a topic's partitions, a group's lag",
    "w                   why: `klog status` of the chosen row",
    "z                   the pane alone on the screen, and back",
    "s, >, F6            sort the pane by its next column",
    "/, F3, F4           only rows of the pane with this text; Enter keeps it, Esc ends it",
    "p, Space            hold the screen, and go on",
    "Esc, Backspace      back",
    "h, ?, F1            this page",
    "q, F10              leave",
)


class Column(NamedTuple):
    """``width`` 0: the rest of the line. ``sort``: what rows are sorted by; the largest first where it is a number."""

    head: str
    width: int
    text: Callable[[Any], str]
    sort: Callable[[Any], Any]


@dataclass
class Pane:
    """One list: its columns, what `klog status` is asked about a row, and where the chosen row is."""

    name: str
    columns: Sequence[Column]
    subject: Callable[[Any], tuple[str, ...]]
    is_bad: Callable[[Any], bool]
    key: Callable[[Any], Any] | None = None
    """What identifies a row, where that is not its subject."""
    rows: list[Any] = field(default_factory=list)
    chosen: Any = None
    top: int = 0
    sorted_by: int | None = None
    wanted: str = ""
    """Only rows with this text in them are shown."""
    hidden: int = 0
    """How many are not, for that."""
    unknown: str | None = None
    """Why there are no rows, where that is not known."""

    def at(self) -> int:
        """The chosen row's number; the first where it has gone."""
        keys = list(map(self.key or self.subject, self.rows))
        return keys.index(self.chosen) if self.chosen in keys else 0

    def choose(self, number: int) -> None:
        if self.rows:
            self.chosen = (self.key or self.subject)(self.rows[max(0, min(number, len(self.rows) - 1))])

    @property
    def row(self) -> Any:
        """The chosen row; None in an empty pane."""
        return self.rows[self.at()] if self.rows else None

    def take(self, rows: Sequence[Any] | None, unknown: str | None = None) -> None:
        """The rows of a new look; without any, why they are not ``unknown``."""
        wanted, every = self.wanted.lower(), rows or ()
        self.unknown = unknown if not every else None
        self.rows = [one for one in every if not wanted or wanted in self._words(one)]
        self.hidden = len(every) - len(self.rows)
        if self.sorted_by is not None:
            by = self.columns[self.sorted_by].sort
            self.rows.sort(key=lambda one: _order(by(one)))

    @property
    def empty(self) -> str:
        """What stands where there are no rows."""
        if self.unknown is not None:
            return f"{self.name} unknown: {self.unknown}"
        return f"none of {self.hidden:,} {self.name} has {self.wanted!r}" if self.hidden else f"no {self.name}"

    def _words(self, one: Any) -> str:
        return " ".join(column.text(one) for column in self.columns).lower()


@dataclass
class Deeper:
    """One subject on the whole screen. ``of``: what it is of, by which its lines are gathered."""

    title: str
    of: tuple[str, Any]
    subject: tuple[str, ...] = ()
    lines: Sequence[str] = ("...",)
    top: int = 0


class Screen:
    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.panes = _panes()
        self.focus = 0
        self.alone = False
        self.deeper: Deeper | None = None
        self.typing = False
        self.held = False
        self.tick: TopTick | None = None
        self.events: Sequence[Event] = ()
        self.no_events: str | None = None
        self._page = 10

    # --- facts ----------------------------------------------------------------------------------------------------

    def take(self, tick: TopTick, events: Sequence[Event], no_events: str | None = None) -> None:
        """A new look; ``events``: the latest, from the oldest on, or why they are not known."""
        if self.held:
            return
        self.tick, self.events, self.no_events = tick, events, no_events
        self._fill()

    def _fill(self) -> None:
        if self.tick is None:
            return
        tick = self.tick
        told = [(number, row(one), one) for number, one in enumerate(reversed(self.events))]
        brokers, topics, partitions, groups, events = self.panes
        brokers.take(tick.brokers)
        topics.take(tick.topics)
        partitions.take(tick.in_trouble)
        groups.take(tick.groups, tick.no_groups)
        events.take(told, self.no_events)

    # --- keys -----------------------------------------------------------------------------------------------------

    def press(self, key: str) -> str | None:
        """A key by prompt_toolkit's name. What is asked of the program: ``quit``, ``load`` (the lines of `deeper`)."""
        if self.typing:
            self._type(key)
            return None
        if key in ("q", "f10"):
            return "quit"
        if self.deeper is not None:
            return self._press_deeper(key)
        pane = self.panes[self.focus]
        if key in _MOVES:
            pane.choose(self._moved(key, pane.at(), len(pane.rows)))
        elif key in ("tab", "right", "s-tab", "left"):
            self.focus = (self.focus + (1 if key in ("tab", "right") else -1)) % len(self.panes)
        elif key == "z":
            self.alone = not self.alone
        elif key in ("s", ">", "f6"):
            following = 0 if pane.sorted_by is None else pane.sorted_by + 1
            pane.sorted_by = following if following < len(pane.columns) else None
            self._fill()
        elif key in ("/", "\\", "f3", "f4"):
            self.typing = True
        elif key in ("p", " "):
            self.held = not self.held
        elif key in ("h", "?", "f1"):
            self.deeper = Deeper("keys", ("help", None), HELP)
        elif key == "escape":
            pane.wanted, self.alone = "", False
            self._fill()
        elif key == "enter" and pane.row is not None:
            words = pane.subject(pane.row)
            self.deeper = Deeper(" ".join(words) or pane.name, (pane.name, pane.row), words)
            return "load"
        elif key == "w" and pane.row is not None:
            return self._why(pane.subject(pane.row))
        return None

    def _why(self, words: tuple[str, ...]) -> str | None:
        if words:
            self.deeper = Deeper(f"why {' '.join(words)}", ("why", words))
        return "load" if words else None

    def _type(self, key: str) -> None:
        pane = self.panes[self.focus]
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, pane.wanted = False, ""
        elif key == "backspace":
            pane.wanted = pane.wanted[:-1]
        elif len(key) == 1 and key.isprintable():
            pane.wanted += key
        self._fill()

    def _press_deeper(self, key: str) -> str | None:
        deeper = self.deeper
        assert deeper is not None
        if key in ("escape", "backspace", "left"):
            self.deeper = None
        elif key in _MOVES:
            deeper.top = self._moved(key, deeper.top, max(1, len(deeper.lines) - self._page + 1))
        elif key == "w":
            return self._why(deeper.subject)
        return None

    def _moved(self, key: str, at: int, count: int) -> int:
        """The number that a key leads to from another, of so many."""
        moves = {"up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1, "home": 0, "end": count}
        moves |= {"pageup": at - self._page, "pagedown": at + self._page}
        return max(0, min(moves[key], count - 1))

    # --- lines ----------------------------------------------------------------------------------------------------

    def lines(self, width: int, height: int) -> list[Line]:
        """The whole screen, ``height`` lines of ``width`` cells at most."""
        if width < WIDTH_MIN or height < HEIGHT_MIN:
            return [[(BAD, cut(f"at least {WIDTH_MIN}x{HEIGHT_MIN}", width))]]
        head = self._head(width)
        room = height - len(head) - 1
        self._page = max(1, room - 1)
        body = self._deeper_lines(width, room) if self.deeper is not None else self._pane_lines(width, room)
        body += [[] for _ in range(room - len(body))]
        return [*head, *body[:room], self._foot(width)]

    def _head(self, width: int) -> list[Line]:
        tick = self.tick
        if tick is None:
            return [[(TITLE, cut(f"klog top  {plain(self.cluster)}", width))], [("", "asking the cluster ...")]]
        live = sum(one.state in ("up", "controller") for one in tick.brokers)
        broken = tick.offline or tick.under_replicated or tick.verdict.startswith(FELT)
        time = f"{tick.time:%H:%M:%S}Z"
        left = cut(f"klog top  {plain(self.cluster)}", width - len(time) - 1)
        first: Line = [(TITLE, pad(left, width - len(time))), ("", time)]
        if tick.trouble is not None:
            return [first, [(BAD, cut(f"no answer, and the rest is of earlier: {plain(tick.trouble)}", width))]]
        controller = "none" if tick.controller is None else tick.controller
        brokers = f"{live}/{len(tick.brokers)} brokers, controller {controller}"
        rates = f"in {_rate(_sum(tick.brokers, 'messages_in'))} msg/s {_size(_sum(tick.brokers, 'bytes_in'))}/s"
        left = f"{brokers}  "
        rest = cut(f"{tick.verdict}  ", max(0, width - cells(left)))
        style = BAD if broken or live < len(tick.brokers) else ""
        return [first, [(style, left), (style, rest), ("", cut(rates, max(0, width - cells(left) - cells(rest))))]]

    def _foot(self, width: int) -> Line:
        if self.typing:
            return [(TITLE, cut(f"/{plain(self.panes[self.focus].wanted)}_", width))]
        words = "q leave  h help  Tab pane  Enter deeper  w why  / filter  s sort  z alone"
        if self.deeper is not None:
            words = "Esc back  q leave  w why"
        wanted = self.panes[self.focus].wanted
        marks = [f"only {wanted!r}"] * bool(wanted) + ["held"] * self.held
        return [(HEADS, pad(cut("  ".join([*(plain(one) for one in marks), words]), width), width))]

    def _deeper_lines(self, width: int, room: int) -> list[Line]:
        deeper = self.deeper
        assert deeper is not None
        shown: list[Line] = [[(HEADS, pad(cut(plain(deeper.title), width), width))]]
        text = deeper.lines[deeper.top : deeper.top + room - 1]
        return shown + [[("", cut(plain(one.expandtabs()), width))] for one in text]

    def _pane_lines(self, width: int, room: int) -> list[Line]:
        if self.alone:
            return self._pane(self.panes[self.focus], width, room, focused=True)
        shown: list[Line] = []
        for number, (pane, rows) in enumerate(zip(self.panes, self._shares(room), strict=True)):
            shown += self._pane(pane, width, rows, focused=number == self.focus)
        return shown

    def _shares(self, room: int) -> list[int]:
        """Lines of each pane: its heads and at least one row, half of what is left for the pane in focus."""
        least = 2 if room >= 2 * len(self.panes) else 1
        shares = [least] * len(self.panes)
        left = room - sum(shares)
        wants = [max(0, 1 + len(pane.rows) - least) for pane in self.panes]
        own = min(wants[self.focus], max(0, left // 2))
        shares[self.focus] += own
        wants[self.focus] -= own
        left -= own
        while left > 0 and any(wants):
            for number, want in enumerate(wants):
                if want and left > 0:
                    shares[number] += 1
                    wants[number] -= 1
                    left -= 1
        return shares

    def _pane(self, pane: Pane, width: int, room: int, *, focused: bool) -> list[Line]:
        widths = _widths(pane.columns, width)
        heads = [
            _cell(one.head, wide, number) for number, (one, wide) in enumerate(zip(pane.columns, widths, strict=True))
        ]
        if pane.sorted_by is not None:
            number = pane.sorted_by
            heads[number] = _cell(f"{pane.columns[number].head}*", widths[number], number)
        rows = room - 1
        hidden = len(pane.rows) - rows
        title = "".join(heads)
        if hidden > 0 or pane.wanted:
            more = f" /{plain(pane.wanted)}" * bool(pane.wanted) + f" +{hidden:,}" * (hidden > 0)
            left = cut(title[: max(0, widths[0] - len(more))], widths[0])
            title = pad(left, widths[0] - len(more)) + more + title[widths[0] :]
        shown: list[Line] = [[(HEADS if focused else TITLE, pad(cut(title, width), width))]]
        if not pane.rows and rows > 0:
            shown.append([(BAD if pane.unknown else DIM, cut(plain(pane.empty), width))])
        at = pane.at() if focused else -1
        top = max(0, min(pane.top, len(pane.rows) - rows))
        if focused:
            top = min(max(top, at - rows + 1), at) if rows > 0 else at
            pane.top = max(0, top)
        else:
            top = 0
        stale = self.tick is not None and self.tick.trouble is not None
        for number, one in enumerate(pane.rows[top : top + rows], start=top):
            text = "".join(
                _cell(plain(column.text(one)), wide, place)
                for place, (column, wide) in enumerate(zip(pane.columns, widths, strict=True))
            )
            style = CHOSEN if number == at else DIM if stale else BAD if pane.is_bad(one) else ""
            shown.append([(style, cut(text, width))])
        return shown[:room]


def _subject_of(event: Event) -> tuple[str, ...]:
    topic, partition = event.get("topic"), event.get("partition")
    if isinstance(topic, str):
        return ("partition", f"{topic}-{partition}") if isinstance(partition, int) else ("topic", topic)
    if isinstance(event.get("group"), str):
        return ("group", event["group"])
    return ("broker", str(event["id"])) if isinstance(event.get("id"), int) else ()


def _panes() -> list[Pane]:
    return [
        Pane(
            "brokers",
            (
                Column("BROKER", 0, lambda one: f"{one.broker} {one.address or ''}", lambda one: f"{one.broker:010}"),
                Column("STATE", 11, lambda one: one.state, lambda one: one.state),
                Column("MSG/S", 8, lambda one: _rate(one.messages_in), lambda one: one.messages_in),
                Column("IN/S", 8, lambda one: _size(one.bytes_in), lambda one: one.bytes_in),
                Column("OUT/S", 8, lambda one: _size(one.bytes_out), lambda one: one.bytes_out),
                Column("LAG", 8, lambda one: _size(one.lag_bytes), lambda one: one.lag_bytes),
                Column("FREE", 8, lambda one: _size(one.disk_free), lambda one: one.disk_free),
                Column("MEM", 8, lambda one: _size(one.memory), lambda one: one.memory),
                Column("CPU", 5, lambda one: "-" if one.cpu is None else f"{one.cpu:.0%}", lambda one: one.cpu),
            ),
            lambda one: ("broker", str(one.broker)),
            lambda one: one.state not in ("up", "controller"),
        ),
        Pane(
            "topics",
            (
                Column("TOPIC", 0, lambda one: one.topic, lambda one: one.topic),
                Column("PARTS", 7, lambda one: f"{one.partitions:,}", lambda one: one.partitions),
                Column("NOT-ISR", 9, lambda one: f"{one.under_replicated:,}", lambda one: one.under_replicated),
                Column("MSG/S", 9, lambda one: _rate(one.messages_in), lambda one: one.messages_in),
                Column("IN/S", 9, lambda one: _size(one.bytes_in), lambda one: one.bytes_in),
                Column("OUT/S", 9, lambda one: _size(one.bytes_out), lambda one: one.bytes_out),
            ),
            lambda one: ("topic", one.topic),
            lambda one: bool(one.under_replicated or one.offline),
        ),
        Pane(
            "partitions in trouble",
            (
                Column("IN TROUBLE", 0, lambda one: f"{one.topic}-{one.partition}", lambda one: one.topic),
                Column("WHAT", 20, lambda one: one.trouble, lambda one: one.trouble),
                Column("LEADER", 8, lambda one: "-" if one.leader is None else str(one.leader), lambda one: one.leader),
                Column("REPLICAS", 12, lambda one: numbers_text(one.replicas), lambda one: len(one.replicas)),
                Column("IN-SYNC", 12, lambda one: numbers_text(one.isr), lambda one: -len(one.isr)),
            ),
            lambda one: ("partition", f"{one.topic}-{one.partition}"),
            lambda one: one.leader is None,
        ),
        Pane(
            "groups",
            (
                Column("GROUP", 0, lambda one: one.group, lambda one: one.group),
                Column("LAG", 9, lambda one: _short(one.lag, count_text), lambda one: one.lag),
                Column("TREND/S", 9, lambda one: _trend(one.trend), lambda one: one.trend),
                Column("BYTES", 9, lambda one: _size(one.lag_bytes), lambda one: one.lag_bytes),
                Column("WAITS", 9, lambda one: _short(one.lag_ms, duration_text), lambda one: one.lag_ms),
                Column("EMPTY-IN", 10, _empty_in, lambda one: one.lag),
            ),
            lambda one: ("group", one.group),
            lambda one: bool(one.lag and one.trend and one.trend > 0),
        ),
        Pane(
            "events",
            (
                Column("EVENT", 10, lambda one: f"{one[1].time:%H:%M:%S}" if one[1].time else "?", lambda one: one[0]),
                Column("KIND", 20, lambda one: one[1].kind, lambda one: one[1].kind),
                Column("SUBJECT", 18, lambda one: one[1].subject, lambda one: one[1].subject),
                Column("WHAT", 0, _told, lambda one: one[1].what),
            ),
            lambda one: _subject_of(one[2]),
            lambda one: False,
            lambda one: repr(one[2]),
        ),
    ]


# --- Cells ------------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text as one line's cells: without line ends, tabs, and what a terminal does not show."""
    shown = visible(text)
    return shown if shown.isprintable() else "".join(one if one.isprintable() else " " for one in shown)


def _cell(text: str, width: int, number: int) -> str:
    """A column's cell with the space behind it: the first ones to the left, numbers to the right."""
    if width <= 0:
        return ""
    shown = cut(text, max(0, width - 1))
    return pad(shown, width) if number == 0 or width > 10 else " " * max(0, width - 1 - cells(shown)) + shown + " "


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """The columns' widths; the last ones are left out (0) where the line is too short for them."""
    widths = [one.width for one in columns]
    open_ = widths.index(0)
    for number in reversed(range(len(widths))):
        if sum(widths) + OPEN_MIN <= width:
            break
        widths[number] = 0
    widths[open_] = max(0, width - sum(widths))
    return widths


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return (1, 0)
    return (0, -value) if isinstance(value, int | float) else (0, value)


def _sum(lines: Sequence[Any], name: str) -> float | None:
    values = [value for one in lines if (value := getattr(one, name)) is not None]
    return sum(values) if values else None


def _short(value: float | None, text: Callable[[Any], str]) -> str:
    return "-" if value is None else text(value).replace(" ", "")


def _rate(value: float | None) -> str:
    return _short(value, lambda value: count_text(round(value)))


def _size(value: float | None) -> str:
    return _short(value, lambda value: size_text(round(value)))


def _trend(value: float | None) -> str:
    if value is None:
        return "-"
    sign = "+" if value > 0 else "-"
    return "=" if abs(value) < 0.05 else sign + _short(round(abs(value), 1), count_text)


def _empty_in(one: GroupLine) -> str:
    """When the group has caught up, if it goes on like this."""
    if not one.lag:
        return "-" if one.lag is None else "now"
    if one.trend is None or one.trend >= -0.05:
        return "-"
    return _short(one.lag / -one.trend * 1000, duration_text)


def _told(one: Any) -> str:
    told = one[1]
    return f"{told.what} ({told.reason})" if told.reason else str(told.what)
