"""What a terminal shows: enough of one to read a prompt, a menu and a toolbar from it."""

from __future__ import annotations

import re

_PART = re.compile(
    r"\x1b\[(?P<private>\??)(?P<numbers>[0-9;]*)(?P<command>[A-Za-z@`])|\x1b\](?:[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b[()][A-Z0-9]|\x1b[=>78M]|(?P<control>[\x00-\x1f])|(?P<text>[^\x00-\x1f\x1b]+)"
)

Style = frozenset[str]
"""SGR numbers that are on: ``4`` underlined, ``31`` red."""


class Emulator:
    """A screen of characters, each with its style. Characters are one column wide."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.cells: list[list[tuple[str, Style]]] = [self._blank() for _ in range(rows)]
        self.row = self.column = 0
        self.style: Style = frozenset()
        self.cursor_asked = 0
        self._rest = ""

    def _blank(self) -> list[tuple[str, Style]]:
        return [(" ", frozenset())] * self.columns

    def feed(self, text: str) -> None:
        text = self._rest + text
        escape = text.rfind("\x1b")  # maybe cut in its middle
        whole = len(text) if escape < 0 or _PART.match(text, escape) else escape
        self._rest = text[whole:]
        for part in _PART.finditer(text[:whole]):
            if part["text"]:
                for character in part["text"]:
                    self._put(character)
            elif part["control"]:
                self._control(part["control"])
            elif part["command"]:
                self._command(part["command"], part["private"], part["numbers"])

    @property
    def lines(self) -> list[str]:
        """The text of each row, without what is blank at its end."""
        return ["".join(character for character, _ in row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def styled(self, wanted: str) -> list[str]:
        """The runs of characters that are shown with this SGR number."""
        found = []
        for row in self.cells:
            marked = "".join(character if wanted in style else "\x00" for character, style in row)
            found += [run for run in marked.split("\x00") if run.strip()]
        return found

    def _put(self, character: str) -> None:
        if self.column >= self.columns:
            self.column = 0
            self._down()
        self.cells[self.row][self.column] = (character, self.style)
        self.column += 1

    def _control(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self.column = max(0, self.column - 1)

    def _down(self) -> None:
        if self.row == self.rows - 1:
            self.cells = [*self.cells[1:], self._blank()]
        else:
            self.row += 1

    def _command(self, command: str, private: str, numbers: str) -> None:
        given = [int(number) for number in numbers.split(";") if number]
        count = max(1, given[0]) if given else 1
        if private:
            return
        if command == "A":
            self.row = max(0, self.row - count)
        elif command == "B":
            self.row = min(self.rows - 1, self.row + count)
        elif command == "C":
            self.column = min(self.columns - 1, self.column + count)
        elif command == "D":
            self.column = max(0, min(self.column, self.columns - 1) - count)
        elif command in "Hf":
            self.row = min(self.rows, count) - 1
            self.column = (min(self.columns, given[1]) if len(given) > 1 else 1) - 1
        elif command == "J":
            self._erase(given[0] if given else 0, whole_rows=True)
        elif command == "K":
            self._erase(given[0] if given else 0, whole_rows=False)
        elif command == "n" and given == [6]:
            self.cursor_asked += 1
        elif command == "m":
            self._restyle(numbers)

    def _erase(self, what: int, *, whole_rows: bool) -> None:
        blank, row = self._blank(), self.cells[self.row]
        if what == 0:
            row[self.column :] = blank[self.column :]
        elif what == 1:
            row[: self.column + 1] = blank[: self.column + 1]
        else:
            row[:] = blank
        if whole_rows:
            erased = range(self.row + 1, self.rows) if what == 0 else range(self.row) if what == 1 else range(self.rows)
            for number in erased:
                self.cells[number] = self._blank()

    def _restyle(self, numbers: str) -> None:
        codes = numbers.split(";")
        while codes:
            code = codes.pop(0)
            if code in ("", "0"):
                self.style = frozenset()
            elif code in ("38", "48"):
                codes = codes[2:] if codes[:1] == ["5"] else codes[4:]
                self.style |= {code}
            else:
                self.style |= {code}
