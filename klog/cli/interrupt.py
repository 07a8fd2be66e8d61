"""Ctrl-C, and a closed pipe behind our output.

Ctrl-C stops a command within a second with exit code 130, whatever blocks it. The first Ctrl-C raises Python's
KeyboardInterrupt, so that files and connections are closed. If that takes too long, or at the second Ctrl-C, the
process exits at once. A signal that arrives together with the first one does not count (`klog.signals`). ``up`` and
``broker start`` handle the signal themselves. A command whose peers would wait for it, such as a member of a group,
handles SIGTERM and SIGHUP in the same way (`ending_in_order`).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import IO, Any, NoReturn, TextIO

from klog.signals import StopRequest

PATIENCE_S = 0.8
"""How long closing may take after Ctrl-C; with what is needed to get here it stays under the promised second."""

STEP_S = 0.1
"""So late a handler runs at most while a person is asked."""

EXIT_SIGNALLED = 128
"""And the signal's number, as shells count: 130 for Ctrl-C."""

Act = Callable[[], object]


class _Interrupts:
    """What this process does on SIGINT. Main thread only, but for the watchdog."""

    installed = False
    ends_process = False
    asked = StopRequest()
    number: int = signal.SIGINT
    cancel: Act | None = None
    cancelled = False
    watchdog: threading.Timer | None = None


_STATE = _Interrupts()


def install() -> None:
    """Take over SIGINT; main thread only."""
    _STATE.installed = _STATE.ends_process = True
    signal.signal(signal.SIGINT, _interrupt)


def leave_to_command() -> None:
    """Python's own handler again, for a command that stops in order."""
    if _STATE.installed:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def cancelling(cancel: Act) -> Iterator[Callable[[], bool]]:
    """While a command runs in an event loop: Ctrl-C calls ``cancel`` and raises nothing.

    Yields a function that says whether that has happened. Does nothing where SIGINT was not taken over.
    """
    _STATE.cancel, _STATE.cancelled = cancel, False
    try:
        yield lambda: _STATE.cancelled
    finally:
        _STATE.cancel = None


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """While inside, signals have this handler; nothing is changed outside of the main thread, where Python has none."""
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = [(one, signal.signal(one, handler)) for one in numbers]
    try:
        yield
    finally:
        for one, earlier in before:
            signal.signal(one, earlier)


def ending_in_order() -> AbstractContextManager[None]:
    """While inside: SIGTERM and SIGHUP do what Ctrl-C does, where that ends the process. Ignored ones stay ignored."""
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    return _handled(_interrupt, *numbers if _STATE.ends_process else ())


def exit_code() -> int:
    """Of a command that was stopped by a signal."""
    return EXIT_SIGNALLED + _STATE.number


def left_to_child() -> AbstractContextManager[None]:
    """While inside, Ctrl-C does nothing here: it reaches a child on the same terminal, whose end is waited for.

    Not by KeyboardInterrupt, which can strike in the middle of ``Popen.wait`` and lose the exit code, and not by
    ignoring the signal, which the child would inherit.
    """
    return _handled(lambda number, frame: None, signal.SIGINT)


@contextmanager
def raising() -> Iterator[None]:
    """While a person is asked: Ctrl-C raises KeyboardInterrupt at once, for nothing else comes back from a question.

    One that came just before counts: what it cancelled would otherwise be asked about first.
    """
    cancel, _STATE.cancel = _STATE.cancel, None
    try:
        if _STATE.cancelled:
            raise KeyboardInterrupt
        yield
    finally:
        _STATE.cancel = cancel


def stopping(stop: Act) -> Callable[..., None]:
    """What signals call, with their number: ``stop``, once. A second signal ends the process at once."""
    asked = StopRequest()

    def asked_to(number: int, frame: FrameType | None = None) -> None:
        if asked.again():
            if asked.count > 1:
                os._exit(EXIT_SIGNALLED + number)
            stop()

    return asked_to


def stop_in_order(stop: Act) -> None:
    """SIGINT and SIGTERM call ``stop`` in the running event loop; a second one ends the process at once."""
    import asyncio

    handler = stopping(stop)
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, handler, one)


def stop_event(asked: Act) -> threading.Event:
    """Set by SIGINT and SIGTERM, which also call ``asked``; a second one ends the process at once."""
    stop = threading.Event()

    def ask() -> None:
        asked()
        stop.set()

    stop_in_order(ask)
    return stop


async def stopped_in_order(work: Coroutine[Any, Any, object]) -> bool:
    """Do the work; whether SIGINT or SIGTERM has cancelled it, which may take as long as it needs then."""
    import asyncio

    doing = asyncio.ensure_future(work)
    stop_in_order(doing.cancel)
    try:
        await doing
    except asyncio.CancelledError:
        return True
    return False


def typed_line(stream: TextIO) -> str:
    """The next line of a terminal.

    Python runs a signal's handler between two steps of its own. A signal that arrives just before a read, or in another
    thread, does not wake it, so the wait for input has steps.
    """
    while not select.select([stream], [], [], STEP_S)[0]:
        pass
    return stream.readline()


def typed_unseen(stream: TextIO, question: str) -> str:
    """Ask on stderr for the next line of a terminal, which does not show it."""
    import termios

    before = termios.tcgetattr(stream)
    try:
        termios.tcsetattr(stream, termios.TCSAFLUSH, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
        sys.stderr.write(question)
        sys.stderr.flush()
        return typed_line(stream)
    finally:
        termios.tcsetattr(stream, termios.TCSAFLUSH, before)
        sys.stderr.write("\n")


def in_shell() -> AbstractContextManager[None]:
    """While inside, SIGINT cancels a command of a process that lives on, the shell, and does no more."""
    if threading.current_thread() is threading.main_thread():
        _STATE.asked, _STATE.number = StopRequest(), signal.SIGINT
        _STATE.installed, _STATE.ends_process = True, False
    return _handled(_interrupt, signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _STATE.asked.again():
        return
    _STATE.number = number
    if _STATE.ends_process:
        if _STATE.asked.count > 1:
            _end_now()
        _STATE.watchdog = threading.Timer(PATIENCE_S, _end_now)
        _STATE.watchdog.daemon = True
        _STATE.watchdog.start()
    if _STATE.cancel is None or _STATE.asked.count > 1:
        raise KeyboardInterrupt
    _STATE.cancelled = True
    _STATE.cancel()


def _end_now() -> NoReturn:
    os._exit(exit_code())


@contextmanager
def reader_watched(stream: IO[Any], act: Act) -> Iterator[None]:
    """While inside: calls ``act`` from a thread when the reader of ``stream`` has closed it, if that can be detected.

    A command that waits for messages would otherwise notice only at its next write, which may never come.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        yield
        return
    stopped, stop = os.pipe()
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are always reported
    poll.register(stopped, 0)

    def watch() -> None:
        if descriptor in {ready for ready, _ in poll.poll()}:
            act()

    watcher = threading.Thread(target=watch, name="reader-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(stop)
        watcher.join()
        os.close(stopped)
