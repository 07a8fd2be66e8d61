"""Runs the console blocks of a document, command by command, in one shell, and compares what they print.

    ```console
    $ klog status || echo "exit $?"      a command; it must end with 0
    > ...                                goes on with it
    KIND  ID  ...                        what it prints, stdout and stderr as they come
    ```

What cannot be the same twice is made the same on both sides before it is compared: see `normalised`. Ports and folders
stand in the document as a person would choose them; the commands are run with free ports, in a folder of their own, and
what they print is translated back. A command that names an act, by the id that an earlier one printed in the document,
is run with the one that it printed now.

`python -m tests.cluster.doc_runner DOCUMENT` runs it and writes what was printed into it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import ports_in_a_row
from klog.admin import local_cluster
from klog.coordination import embedded

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("9091", "9092", "9093", "9094", "9095", "9096", "2181")
FOLDER = "/srv/klog"
ACT = re.compile(r"(?<=klog undo )[0-9a-z]{12}\b")
RECEIPT = re.compile(r"(?<=^undo: klog undo )[0-9a-z]{12}$", re.MULTILINE)
COMMAND_S = 90.0
END_S = 20.0
VOLATILE_COLUMNS = frozenset(
    {
        *("PID", "MS", "SINCE", "RATE", "CRC", "TIME", "TIMESTAMP", "ETA", "PERCENT", "SESSION"),
        *("BYTES", "BYTES-LEFT", "LOG-END-OFFSET", "END", "EPOCH"),
        *("LEADER", "LEADER-EPOCH", "OLD", "CONTROLLER", "LEADERS", "REPLICAS", "LAG-MS", "LAG-BYTES", "BATCHES"),
    }
)
"""Who leads depends on who was quicker, and how many bytes messages are on how they were batched."""
OFFSETS = frozenset({"LAST-OFFSET", "PRIOR", "DELTA", "THEN", "TO"})
"""So do offsets, but for the first: numbers of three digits and more; TO may be brokers, and THEN another setting's."""
CONTINUES = " " * 12
"""Before what goes on with a cell or a finding in a line of its own, but for commands of an advice: where it is cut
depends on the folder's name."""


@dataclass
class Command:
    """`line`: of its `$` in the document, from 0. `expected`: the lines below it."""

    line: int
    text: str
    expected: list[str] = field(default_factory=list)

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


def commands(document: str) -> list[Command]:
    """Every command of the console blocks, in order."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(document.splitlines()):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(Command(number, line[2:]))
        elif inside and line.startswith("> ") and not found[-1].expected:
            found[-1].text += "\n" + line[2:]
        elif inside:
            found[-1].expected.append(line)
    return found


def make_programs(folder: Path) -> Path:
    """A folder for PATH in which there is this checkout's ``klog``."""
    klog = folder / "bin" / "klog"
    klog.parent.mkdir()
    klog.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m klog "$@"\n')
    klog.chmod(0o755)
    return klog.parent


class Shell:
    """One bash, in a process group of its own, which is ended with all that it has started."""

    def __init__(self, folder: Path, ports: Mapping[str, str]) -> None:
        """`ports`: from those of the document to those that are used."""
        self.folder = folder
        self.ports = ports
        self._acts: dict[str, str] = {}
        """From those of the document to those that were made."""
        programs = make_programs(folder)
        (folder / "work").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KLOG_")}
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder / "work",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **environment,
                "PATH": f"{programs}{os.pathsep}{environment['PATH']}",
                "HOME": str(folder / "work"),
                "KLOG_HOME": str(folder / "work" / ".klog"),
            },
        )

    def run(self, command: Command, timeout_s: float = COMMAND_S) -> tuple[str, int]:
        """What it printed, in the document's words but for acts, and its exit code."""
        printed, code = self._run(self.with_acts(command.text), timeout_s)
        self._acts.update(zip(RECEIPT.findall("\n".join(command.expected)), RECEIPT.findall(printed), strict=False))
        return printed, code

    def with_acts(self, command: str) -> str:
        """The command with the acts that were made."""
        return ACT.sub(lambda found: self._acts.get(found[0], found[0]), command)

    def _run(self, command: str, timeout_s: float) -> tuple[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        end = f"--end-{time.monotonic_ns()}--"
        self._process.stdin.write(f"{self._used(command)}\nprintf '\\n%s %d\\n' {end} $?\n".encode())
        self._process.stdin.flush()
        printed = b""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(rb"\n" + end.encode() + rb" (\d+)\n", printed)) is None:
            ready = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
            data = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise AssertionError(
                    f"`{command}` has not ended within {timeout_s:g} s; it printed:\n{printed.decode()}"
                )
            printed += data
        return self._documented(printed[: found.start()].decode("utf-8", "replace")), int(found[1])

    def _used(self, command: str) -> str:
        return re.sub(r"\b(?:" + "|".join(PORTS) + r")\b", lambda found: self.ports[found[0]], command).replace(
            FOLDER, str(self.folder / "work")
        )

    def _documented(self, printed: str) -> str:
        for there, used in self.ports.items():
            printed = re.sub(rf"\b{used}\b", there, printed)
        return printed.replace(str(self.folder / "work"), FOLDER)

    def end(self) -> None:
        """Everything it started and that was not stopped is ended; what runs in sessions of its own is found first."""
        work = self.folder / "work"
        for plan in work.rglob("cluster.json"):
            local_cluster.down(plan.parent, work / ".klog")
        for settings in work.rglob("zoo.cfg"):
            server = embedded.find(settings.parent)
            if server is not None:
                server.stop()
        group = self._process.pid
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + (0 if number == signal.SIGCONT else END_S)
            while time.monotonic() < deadline and self._group_lives(group):
                time.sleep(0.05)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _group_lives(self, group: int) -> bool:
        self._process.poll()
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True


def normalised(printed: str) -> list[str]:
    """Lines in which what differs from run to run is made equal: columns of times and process ids, moments, rates."""
    lines: list[str] = []
    header: list[str] = []
    for line in re.sub(rf"\n(?:{CONTINUES} +| *(?=`))", " ", printed).splitlines():
        if line.startswith("changed in"):
            break  # the end of `klog status`: acts of one minute come in any order, the controller's among them
        if line.endswith(("; still trying", "earlier: -o start")):
            continue  # on stderr, at whatever moment: a client that has not heard yet who has gone, a count
        line = _plain(line)
        words = line.split()
        if len(words) > 1 and all(re.fullmatch(r"[A-Z][A-Z-]*", word) for word in words):
            header = words
        elif header and len(words) >= len(header):
            words = line.split(maxsplit=len(header) - 1)
            words = [_cell(name, word) for name, word in zip(header, words, strict=True)]
            if words[0] == "controller":  # whoever was first
                words[1:3] = "*", "*"
            if "FIRST-DIFFERENCE" in header:  # a line a replica, the preferred leader's first
                words[header.index("BROKER")] = "*"
        else:
            header = []
        if words:
            lines.append(" ".join(words))
    return lines


def _cell(column: str, text: str) -> str:
    if column in VOLATILE_COLUMNS:
        return "*"
    if column in OFFSETS and re.fullmatch(r"-?\d{3,}", text):
        return "*"
    if column in ("ISR", "FLUSHED-BY") and re.fullmatch(r"[\d,]+", text):
        return ",".join(sorted(text.split(",")))
    return " ".join(text.split())


def _plain(line: str) -> str:
    line = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "MOMENT", line)
    line = re.sub(r"\b\d[\d,.]* ?(?:ms|s|MB/s|KB/s|kB/s|B/s|/s)(?![\w/])", "SOME", line)
    line = re.sub(r"[\d,]+ bytes", "SOME bytes", line)
    line = re.sub(r"[\d,]+ messages/s", "SOME messages/s", line)
    line = re.sub(r"\b(act|undo) [0-9a-z]{12}\b", r"\1 ACT", line)
    line = re.sub(r"\b127\.0\.0\.1:[1-6]\d{4}\b", "ADDRESS", line)  # ZooKeeper's, chosen by `klog up`
    line = re.sub(r"\bklog \d+\.\d+\.\d+\S*", "klog VERSION", line)
    line = re.sub(r"\bZooKeeper \d+\.\d+\.\d+", "ZooKeeper VERSION", line)
    line = re.sub(r"RunningAs\w+, leads \d+ of \d+ partitions?", "RUNNING, leads some of some partitions", line)
    # klog.events is made when there is something to tell.
    line = re.sub(r"\d+ in \d+ topics?", "some in some topics", line)
    line = re.sub(r"holds \d+ partitions?", "holds some partitions", line)
    line = re.sub(r"[1-9]\d* not in sync", "some not in sync", line)
    # A partition that the broker led has another leader, others have one replica less in sync.
    line = re.sub(r"broker \d leads, epoch.*leader-elected|in-sync replicas [\d,]+ \(.*isr-changed", "CHANGED", line)
    line = re.sub(r"(?<=metadata: )replicas [\d,]+", "replicas", line)
    line = re.sub(r"(?<=in-sync )[\d,]+", lambda found: ",".join(sorted(found[0].split(","))), line)
    line = re.sub(r"(broker-up: )broker \d(?:, broker \d)+", r"\1brokers", line)
    # The screen of `klog status`: who is the controller, what was changed when, and whether klog.events is there yet.
    line = re.sub(r"\b\d\d:\d\d:\d\d(?:Z\b)?", "CLOCK", line)
    line = re.sub(r"\b\d{4}-\d\d-\d\d CLOCK", "MOMENT", line)
    line = line.replace("it shut down by CLOCK", "it shut down at CLOCK")  # by whoever noticed
    line = re.sub(r"\b(?:OK|WARNING: \d+ findings?)  ", "WELL ", line)  # leaders may not be back yet
    line = re.sub(r"none yet$", "all in sync", line)
    line = re.sub(r"\b(\d+)\* ", r"\1 ", line)
    line = re.sub(r"\b\d+ of \d+ partitions?", "some of some partitions", line)
    line = re.sub(r"^partitions +\d+ ", "partitions some ", line)
    return re.sub(r"\b\d+ connections?", "SOME connections", line)


def free_ports() -> dict[str, str]:
    """One for each of the document's; neighbours stay neighbours, as `klog up` counts on."""
    first = ports_in_a_row(len(PORTS))
    return {there: str(first + i) for i, there in enumerate(PORTS)}


def _ports_as_wide() -> dict[str, str]:
    """As `free_ports`, of four digits as the document's: columns keep their widths."""
    rows = (range(first, first + len(PORTS)) for first in range(7001, 9000, 10))
    free = next(row for row in rows if all(map(embedded.is_free, row)))
    return {there: str(port) for there, port in zip(PORTS, free, strict=True)}


def rewrite(path: Path) -> None:
    """Run the document, and put what was printed into it."""
    lines = path.read_text("utf-8").splitlines()
    result: list[str] = []
    done = 0
    with tempfile.TemporaryDirectory(prefix="klog-doc-") as folder:
        shell = Shell(Path(folder), _ports_as_wide())
        try:
            for command in commands("\n".join(lines)):
                begun = time.monotonic()
                printed, code = shell.run(command)
                print(f"[{time.monotonic() - begun:.1f} s, exit {code}] $ {command.text}\n{printed}")
                if code != 0:
                    raise SystemExit(f"line {command.line + 1}: exit {code}")
                result += lines[done : command.line]
                result += map(shell.with_acts, lines[command.line : command.line + command.lines])
                result += [line.rstrip() for line in printed.rstrip("\n").splitlines()]
                done = command.line + command.lines + len(command.expected)
        finally:
            shell.end()
    path.write_text("\n".join(result + lines[done:]) + "\n", "utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
