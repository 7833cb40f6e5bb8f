"""The scheduler under `run_examples` and the collector: rows in, one outcome each out."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

from rollfold.dispatch.attempt import (
    INTERRUPTED,
    NEVER_STARTED,
    REQUEST_FAILED,
    Failure,
    Result,
    Row,
)
from rollfold.dispatch.budget import Budget

CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds that cancelled rows get to end when a run is closed."""


@dataclass(slots=True)
class Sent:
    """A row with what became of its dispatch so far.

    Args:
        row: the caller's own object.
        reply: the result, the failure, or why the row was omitted (`interrupted`,
            `never_started`).
        seconds: from dispatch to the body's last byte; None where it was not sent.
        not_before: Unix seconds; exchanges that started earlier belong to an earlier
            dispatch under the same id. None where there was none.
    """

    row: Any
    reply: Result | Failure | str
    seconds: float | None = None
    not_before: float | None = None


@dataclass(slots=True)
class Outcome:
    """What a row came back with: a result, or an error to raise."""

    row: Any
    result: Result
    error: BaseException | None = None
    seconds: float | None = None
    failed: bool = False


Permit = AbstractAsyncContextManager[Any]


class Engine:
    """Draws rows when there is room for them, and queues what becomes of each.

    Rows are drawn one at a time as slots get free; what is running, being finished and
    waiting for its consumer is bounded together. It lives on one event loop.

    Args:
        rows: drawn lazily.
        check: gives why a row cannot be sent, as an outcome of its own; None where it can.
        send: dispatches a row and fills in its `reply`; holds a slot while it runs.
        finish: turns what was sent into an outcome; holds no slot.
        concurrency: slots.
        max_held: rows running, being finished or waiting for the consumer, at most.
        semaphore: held by each row while it is sent, beside its slot.
        budget: of the run.
        prepare: awaited before the first row is drawn.
        cleanup: awaited once nothing is left to send.
    """

    def __init__(
        self,
        rows: Iterator[Any],
        *,
        check: Callable[[Any], Outcome | None],
        send: Callable[[Sent], Awaitable[None]],
        finish: Callable[[Sent], Awaitable[Outcome]],
        concurrency: float,
        max_held: float,
        semaphore: Permit | None = None,
        budget: Budget | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        cleanup: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._rows = rows
        self._check = check
        self._send = send
        self._finish = finish
        self._concurrency = concurrency
        self._max_held = max_held
        self._semaphore = semaphore
        self._budget = budget
        self._prepare = prepare
        self._cleanup = cleanup
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ahead: deque[Any] = deque()
        self._exhausted = False
        self._source_error: BaseException | None = None
        self._fatal: BaseException | None = None
        self._fatal_raised = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: dict[asyncio.Task[None], tuple[Any, Permit | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._delayed: dict[int, tuple[asyncio.TimerHandle, Any]] = {}
        self._pushes = 0
        self._ready: deque[Outcome] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._draining = False
        self._handed = 0
        self._cut = False
        self._closed = False
        self.drawn = 0
        self.delivered = 0
        self.started = 0

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._loop is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to run, to deliver or to clean up."""
        return self._closed or (
            self._exhausted
            and self._cleanup is None
            and not (self._ahead or self._ready or self._busy())
        )

    @property
    def running(self) -> int:
        """Rows that are being sent now."""
        return len(self._sending)

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        if self._budget is not None:
            self._deadline = self._loop.time() + self._budget.seconds
            self._arm()
        if self._prepare is None:
            self._fill()
        else:
            self._preparing = self._loop.create_task(self._begin(self._prepare))

    def _arm(self) -> None:
        if self._loop is not None and self._deadline is not None and not self._cut:
            self._timer = self._loop.call_at(self._deadline, self.interrupt)

    def push(self, row: Any, after_s: float = 0.0) -> None:
        """Add a row before those not yet drawn, at once or in some seconds: a retry."""
        if self._timer is not None and self._timer.cancelled():
            self._arm()
        if after_s > 0 and self._loop is not None and not self._draining:
            number = self._pushes = self._pushes + 1
            handle = self._loop.call_later(after_s, self._push_delayed, number)
            self._delayed[number] = (handle, row)
            return
        self._ahead.append(row)
        self._fill()

    def _push_delayed(self, number: int) -> None:
        handle, row = self._delayed.pop(number)
        handle.cancel()
        self.push(row)

    def drain(self) -> None:
        """Start nothing more: what waits comes back as never started, what runs runs on."""
        self._draining = True
        for number in tuple(self._delayed):
            self._push_delayed(number)
        if self._asking is not None:
            self._asking.cancel()
        self._fill()
        self._wake_all()

    def interrupt(self) -> None:
        """Cancel what is being sent, which comes back as interrupted, and start nothing more."""
        self._cut = True
        for task in tuple(self._sending):
            task.cancel()
        self.drain()

    def owes_another(self) -> bool:
        """Say whether an outcome is due beyond those handed out, and count it as handed out.

        Draws a row to find out, where the rows drawn so far are all accounted for.
        """
        if self._fatal is not None:
            return not self._fatal_raised
        if self._closed:
            return False
        while self.drawn - self.delivered + len(self._ahead) <= self._handed:
            if not self._draw_ahead():
                return False
        self._handed += 1
        return True

    async def next_handed(self) -> Outcome | None:
        """Wait for an outcome that was handed out; cancelled, it is to be handed out again."""
        try:
            return await self.next()
        finally:
            self._handed -= 1

    def take_source_error(self) -> BaseException | None:
        """Give the error that the caller's iterator raised, once."""
        error, self._source_error = self._source_error, None
        return error

    async def next(self) -> Outcome | None:
        """Wait for the next outcome; None where none is left."""
        while True:
            if self._ready:
                outcome = self._ready.popleft()
                self.delivered += 1
                self._fill()
                return outcome
            if self._fatal is not None:
                self._fatal_raised = True
                raise self._fatal
            if self._closed:
                return None
            if not self._busy():
                self._fill()
                if not self._busy() and not self._ready:
                    await self._clean()
                    return None
                continue
            await self._wait()

    def abandon(self) -> None:
        """Cancel everything without waiting; nothing more is delivered."""
        if self._closed:
            return
        self._closed = True
        self._exhausted = True
        if self._timer is not None:
            self._timer.cancel()
        for handle, _ in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        for task in (*self._tasks, self._asking, self._preparing):
            if task is not None:
                task.cancel()
        self._wake_all()

    async def aclose(self) -> None:
        """Cancel everything and wait, a bounded time, until it has ended."""
        self.abandon()
        left = [task for task in (*self._tasks, self._asking, self._preparing) if task is not None]
        try:
            if left:
                await asyncio.wait(left, timeout=CLOSE_TIMEOUT_S)
        finally:
            self._ready.clear()
            await self._clean()

    async def _begin(self, prepare: Callable[[], Awaitable[None]]) -> None:
        try:
            await prepare()
        except Exception as error:  # noqa: BLE001 (given to whoever awaits the first outcome)
            self._preparing = None
            await self._fail(error)
        finally:
            self._preparing = None
        self._fill()
        self._wake_all()

    async def _fail(self, error: BaseException) -> None:
        self._fatal = error
        self.abandon()
        await self._clean()

    def _busy(self) -> bool:
        return bool(self._tasks or self._preparing or self._asking or self._delayed)

    def _has_room(self) -> bool:
        return (
            len(self._sending) < self._concurrency
            and len(self._tasks) + len(self._ready) < self._max_held
        )

    def _look_ahead(self) -> bool:
        """Have a row at hand, drawn from the caller's iterator if need be."""
        return bool(self._ahead) or self._draw_ahead()

    def _draw_ahead(self) -> bool:
        if self._exhausted:
            return False
        try:
            self._ahead.append(next(self._rows))
        except StopIteration:
            self._exhausted = True
        except Exception as error:  # noqa: BLE001 (raised to the consumer, behind the rows drawn before)
            self._exhausted = True
            self._source_error = error
        return not self._exhausted

    def _late(self) -> bool:
        if self._deadline is None or self._budget is None or self._loop is None:
            return False
        return self._loop.time() + self._budget.margin_s >= self._deadline

    def _fill(self) -> None:
        """Use the room there is."""
        if self._loop is None or self._preparing is not None or self._closed:
            return
        while True:
            if self._draining or self._late():
                if not self._draining:
                    self.drain()
                    return
                if len(self._tasks) + len(self._ready) >= self._max_held or not self._look_ahead():
                    break
                row = self._draw()
                self._begin_finish(Sent(row, NEVER_STARTED))
                continue
            if not self._has_room():
                break
            if self._semaphore is not None:
                if self._asking is None and self._look_ahead():
                    self._asking = self._loop.create_task(self._ask(self._semaphore))
                    self._asking.add_done_callback(self._asked)
                break
            if not self._look_ahead():
                break
            self._begin_row(self._draw())
        if not self._busy():
            self._wake_all()

    def _draw(self) -> Any:
        self.drawn += 1
        return self._ahead.popleft()

    async def _ask(self, semaphore: Permit) -> None:
        """Take the caller's semaphore for one row after the other while there is room."""
        try:
            while self._has_room() and self._look_ahead() and not self._draining:
                await semaphore.__aenter__()
                # The wait may have outlasted the budget, the room or the rows.
                if (
                    self._closed
                    or self._draining
                    or self._late()
                    or not self._has_room()
                    or not self._look_ahead()
                    or not self._begin_row(self._draw(), semaphore)
                ):
                    await semaphore.__aexit__(None, None, None)
                    if self._closed or self._draining or self._late():
                        break
        except Exception as error:  # noqa: BLE001 (a semaphore that breaks ends the run, loudly)
            self._asking = None
            await self._fail(error)

    def _asked(self, task: asyncio.Task[None]) -> None:
        """Let the asking task go; one that was cancelled before its first step ran no code."""
        if self._asking is task:
            self._asking = None
        self._fill()
        self._wake_all()

    def _begin_row(self, row: Any, semaphore: Permit | None = None) -> bool:
        refused = self._check(row)
        if refused is not None:
            self._deliver(refused)
            return False
        assert self._loop is not None  # noqa: S101 (started)
        task = self._loop.create_task(self._run(row, semaphore))
        self.started += 1
        self._tasks.add(task)
        self._sending[task] = (row, semaphore)
        task.add_done_callback(self._forget)
        return True

    def _begin_finish(self, sent: Sent) -> None:
        assert self._loop is not None  # noqa: S101 (started)
        self._keep(self._loop.create_task(self._complete(sent)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Let a task go; one that was cancelled before its first step still holds all it got."""
        self._tasks.discard(task)
        unsent = self._sending.pop(task, None)
        if unsent is not None and self._loop is not None and not self._loop.is_closed():
            self._keep(self._loop.create_task(self._give_back(*unsent)))
        if not self._closed:
            self._fill()
        self._wake_all_if_idle()

    async def _give_back(self, row: Row, semaphore: Permit | None) -> None:
        if semaphore is not None:
            await semaphore.__aexit__(None, None, None)
        if not self._closed:
            await self._complete(Sent(row, NEVER_STARTED))

    async def _run(self, row: Row, semaphore: Permit | None) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (this is a task)
        sent = Sent(row, INTERRUPTED)
        try:
            await self._send(sent)
        except asyncio.CancelledError:
            if not self._cut or self._closed:
                raise
            task.uncancel()
        except Exception as error:  # noqa: BLE001 (a row always has its outcome)
            sent.reply = Failure(REQUEST_FAILED, type(error).__name__, str(error))
        finally:
            if semaphore is not None:
                await semaphore.__aexit__(None, None, None)
            self._sending.pop(task, None)
        if self._budget is not None and sent.seconds is not None:
            self._budget.note(sent.seconds)
        self._fill()
        await self._complete(sent)

    async def _complete(self, sent: Sent) -> None:
        try:
            outcome = await self._finish(sent)
        except Exception as error:  # noqa: BLE001 (a row always has its outcome)
            outcome = Outcome(sent.row, {}, error)
        task = asyncio.current_task()
        if self._exhausted and not self._ahead and self._tasks == {task} and not self._ready:
            # Connections are closed before the last row is handed over: its consumer may
            # end the event loop the moment it has it.
            await self._clean()
        self._deliver(outcome)

    def _deliver(self, outcome: Outcome) -> None:
        self._ready.append(outcome)
        self._wake_one()

    async def _clean(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        cleanup, self._cleanup = self._cleanup, None
        if cleanup is not None:
            await cleanup()

    async def _wait(self) -> None:
        assert self._loop is not None  # noqa: S101 (started)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiters.remove(waiter)
            if waiter.done() and not waiter.cancelled():
                self._wake_one()  # the wake-up was for an outcome: somebody else's now
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_one()

    def _wake_all_if_idle(self) -> None:
        if not self._busy():
            self._wake_all()
