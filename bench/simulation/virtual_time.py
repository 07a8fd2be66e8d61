"""An asyncio loop in virtual time: waits cost nothing, and the CPU time of the code under test is added as measured.

The clock moves in two ways. A wait (a timer, a request on its way) jumps it to the next timer. Code that runs moves it
by its own CPU time, measured by the thread's clock, so that other load of the machine does not count. Code of the model
itself runs under `uncounted`. With `counts_cpu` False the clock ignores CPU time, and a run is the same every time.

Threads take turns with the loop: one of them runs at a time (`Turns`), as under the interpreter's lock. So the CPU time
of a thread delays the loop in virtual time too, which is the worst case of what the lock does.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from klog.server.executors import Executors, Purpose

P = ParamSpec("P")
T = TypeVar("T")


class Stuck(Exception):
    """Nothing is left that could ever happen."""


class Meter:
    """CPU time of the code under test, in whichever thread it runs; one thread runs at a time."""

    def __init__(self, *, counts_cpu: bool) -> None:
        self.counts_cpu = counts_cpu
        self.total_s = 0.0
        self._since_s = 0.0
        self._depth = 1

    def now_s(self) -> float:
        """What was counted so far."""
        if self._depth or not self.counts_cpu:
            return self.total_s
        return self.total_s + time.thread_time() - self._since_s

    def stop(self) -> None:
        """From here on, what this thread does is not counted. Nests."""
        if self._depth == 0 and self.counts_cpu:
            self.total_s += time.thread_time() - self._since_s
        self._depth += 1

    def go(self) -> None:
        """The counterpart of `stop`, perhaps in another thread."""
        self._depth -= 1
        if self._depth == 0 and self.counts_cpu:
            self._since_s = time.thread_time()

    def charge(self, seconds: float) -> None:
        """Count the CPU time of something that the model leaves out, as calibrated."""
        self.total_s += seconds


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. ``longest_s`` is the longest time for which the loop ran without looking at what waits."""

    def __init__(self, *, counts_cpu: bool = True) -> None:
        self.meter = Meter(counts_cpu=counts_cpu)
        self._jumped_s = 0.0
        self._looked_s = 0.0
        self._in_threads_s = 0.0
        self.longest_s = 0.0
        super().__init__(_Jumps(self._jump))
        self.turns = Turns(self)

    def time(self) -> float:
        return self._jumped_s + self.meter.now_s()

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        """No other thread runs while the loop looks, so nothing has to wake it up."""
        return self.call_soon(callback, *arguments, context=context)

    def _jump(self, timeout_s: float | None) -> None:
        now_s = self.meter.now_s()
        self.longest_s = max(self.longest_s, now_s - self._looked_s - self._in_threads_s)
        self._looked_s, self._in_threads_s = now_s, 0.0
        if timeout_s is None:
            raise Stuck("no timer runs, and no request is on its way")
        if timeout_s > 0:
            self._jumped_s += timeout_s

    def in_thread(self, seconds: float) -> None:
        """A thread has run for so long: the loop could not, but it was not its own doing."""
        self._in_threads_s += seconds

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Code of the model."""
        self.meter.stop()
        try:
            yield
        finally:
            self.meter.go()

    def run_virtually(self, work: Any) -> Any:
        """As `run_until_complete`, with the meter on."""
        self.meter.go()
        try:
            return self.run_until_complete(work)
        finally:
            self.meter.stop()


class _Jumps(selectors.SelectSelector):
    """No socket is ever ready: waiting is jumping."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._on_select = jump

    def select(self, timeout: float | None = None) -> list[Any]:
        self._on_select(timeout)
        return []


class Turns:
    """One thread runs at a time: the loop's, or that of one `Worker`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.running: Worker | None = None
        self._back = threading.Semaphore(0)

    def take(self, worker: Worker) -> None:
        """On the loop: let the worker run until it waits or ends."""
        meter = self.loop.meter
        meter.stop()
        before_s = meter.total_s
        self.running = worker
        worker.turn.release()
        self._back.acquire()
        self.running = None
        self.loop.in_thread(meter.total_s - before_s)
        meter.go()

    def give_back(self, worker: Worker, *, for_good: bool) -> None:
        """In the worker: let the loop run."""
        self._back.release()
        if not for_good:
            worker.turn.acquire()


class Worker:
    """Runs one piece of work in a thread. ``is_counted``: its CPU time is that of the code under test."""

    def __init__(
        self, turns: Turns, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self.turn = threading.Semaphore(0)
        self._turns = turns
        self._work = work
        self._done = done
        self.is_counted = True
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """On the loop."""
        self._turns.take(self)

    def wait(self) -> None:
        """In the worker: until the loop resumes it."""
        meter = self._turns.loop.meter
        if self.is_counted:
            meter.stop()
        self._turns.give_back(self, for_good=False)
        if self.is_counted:
            meter.go()

    def _run(self) -> None:
        self.turn.acquire()
        meter, loop = self._turns.loop.meter, self._turns.loop
        result, error = None, None
        if self.is_counted:
            meter.go()
        try:
            result = self._work()
        except BaseException as raised:
            error = raised
        if self.is_counted:
            meter.stop()
        loop.call_soon(self._done, result, error)
        self._turns.give_back(self, for_good=True)


class VirtualExecutors(Executors):
    """As many threads for each purpose as a broker has, in virtual time."""

    def __init__(self, loop: VirtualLoop, *, is_counted: bool = True) -> None:
        super().__init__()
        self._loop = loop
        self._is_counted = is_counted
        self._busy: dict[Purpose, int] = defaultdict(int)
        self._queue: dict[Purpose, deque[Callable[[], None]]] = defaultdict(deque)

    async def run_in_turn(
        self, whose: str, disk: str, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            self._busy[purpose] -= 1
            if self._queue[purpose]:
                self._queue[purpose].popleft()()
            if future.done():
                return  # its asker has given up
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def start() -> None:
            if future.cancelled():
                if self._queue[purpose]:
                    self._queue[purpose].popleft()()
                return
            self._busy[purpose] += 1
            worker = Worker(self._loop.turns, lambda: work(*arguments, **named), done)
            worker.is_counted = self._is_counted
            self._loop.call_soon(worker.resume)

        if self._busy[purpose] < purpose.threads:
            start()
        else:
            self._queue[purpose].append(start)
        return await future


class VirtualClock:
    """`klog.clock.Clock` of the loop; a sleeping worker lets the others run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        worker = self._loop.turns.running
        assert worker is not None, "the loop never sleeps"
        self._loop.call_later(seconds, worker.resume)
        worker.wait()
