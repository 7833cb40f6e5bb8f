"""Dispatch rows to agent servers and hand back their results, enriched or as they came."""

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from rollfold.client import AgentClient, allow_connections
from rollfold.dispatch.attempt import (
    MAX_BODY_BYTES,
    PostClient,
    Result,
    RolloutFailedError,
    Row,
)
from rollfold.dispatch.budget import Budget
from rollfold.dispatch.checks import RowsError, stamp_rollout_ids
from rollfold.dispatch.engine import Engine, Outcome
from rollfold.dispatch.steps import Steps
from rollfold.errors import RollfoldError

__all__ = [
    "RolloutFailedError",
    "RowsError",
    "RunExamples",
    "run_examples",
    "stamp_rollout_ids",
]

GENERATOR_CONCURRENCY: Final = 2000
"""Rows of a generator in flight where the caller sets no number; a list's go all at once."""

CaptureDirs = Iterable[str | os.PathLike[str]] | str | os.PathLike[str]


def run_examples(
    examples: Iterable[Row],
    head_server_config: object | None = None,
    semaphore: AbstractAsyncContextManager[Any] | None = None,
    *,
    client: PostClient | None = None,
    concurrency: int | None = None,
    enrich_results: bool = False,
    include_model_call_payloads: bool = True,
    delete_model_call_capture: bool = False,
    capture_dirs: CaptureDirs | None = None,
    observability_enabled: bool = True,
    dispatch_budget_s: float | None = None,
    drain_margin_s: float | None = None,
    run_timeout_s: float = 14_400.0,
    clock_skew_s: float = 5.0,
    max_body_bytes: int = MAX_BODY_BYTES,
    on_failure: Literal["raise", "record"] = "raise",
) -> "RunExamples":
    """Run each row on its agent server; give `(row, result)` pairs as they complete.

    Each row is posted once to `/run` of the server that its `agent_ref.name` names (or of
    the one environment server in front of that agent). Nothing is ever sent again.

    Args:
        examples: rows, JSON objects. A list is checked as a whole before anything is sent;
            a generator is drawn as slots get free, its bad rows are failures of their own.
        head_server_config: a gym's head server, anything with `host` and `port`.
        semaphore: held by each row while it runs, for a bound shared with other runs.
        client: what carries the rows instead of a head server's addresses: an AgentClient,
            or anything with `async post(server_name, url_path, json)` that gives an object
            with `status` and an awaitable `read()`. It stays open.
        concurrency: rows in flight at most; by default all of a list, 2,000 of a generator.
        enrich_results: fold the captured model calls into each result
            (`rollfold.enrich_run_result`); else a result is what `/run` returned.
        include_model_call_payloads: keep requests and responses in enriched results.
        delete_model_call_capture: remove a capture once it is in its result.
        capture_dirs: where the captures are; by default what the head server says.
        observability_enabled: passed to the enrichment; off withholds `ng_perf`.
        dispatch_budget_s: seconds after which running rows are cancelled and come back
            interrupted, waiting ones never started (contract, section 11).
        drain_margin_s: no row starts with fewer seconds of the budget left; by default the
            75th percentile of this run's durations so far.
        run_timeout_s: seconds a row may take, from its dispatch to its body's last byte.
        clock_skew_s: seconds that the clocks of this host and the model servers may differ;
            used for a rollout id that this process dispatched before (contract, section 10).
        max_body_bytes: of one result; a larger one is a failure.
        on_failure: `raise` raises RolloutFailedError when a failed row's pair is awaited,
            `record` gives a failure record (`_ng_failure_*`) as its result.

    Returns:
        An iterator of awaitables of `(row, result)`, in the order of completion, and an
        async iterator of the pairs themselves. `row` is the caller's own object. Leaving
        it early, or its `aclose()`, cancels what is left.

    Raises:
        RowsError: rows of a list that cannot be sent; lists them, nothing is sent.
        ValueError: arguments that do not fit together.
        MissingExtraError: aiohttp or PyYAML is wanted and not installed.
    """
    _check_arguments(
        client=client,
        head_server_config=head_server_config,
        refused=delete_model_call_capture and not include_model_call_payloads,
        on_failure=on_failure,
        concurrency=concurrency,
        seconds={
            "run_timeout_s": run_timeout_s,
            "dispatch_budget_s": dispatch_budget_s,
            "drain_margin_s": drain_margin_s,
            "clock_skew_s": clock_skew_s,
        },
    )
    directories = _directories(capture_dirs)
    listed = examples if isinstance(examples, list | tuple) else None
    enrich_options = {
        "observability_enabled": observability_enabled,
        "include_payloads": include_model_call_payloads,
        "delete_capture": delete_model_call_capture,
    }
    run = Steps(
        listed=listed,
        client=client,
        head_server_config=head_server_config,
        capture_dirs=directories,
        enrich_options=enrich_options if enrich_results else None,
        run_timeout_s=float(run_timeout_s),
        clock_skew_s=float(clock_skew_s),
        max_body_bytes=max_body_bytes,
        record_failures=on_failure == "record",
    )
    run.check_list()
    slots: float = concurrency or (math.inf if listed is not None else GENERATOR_CONCURRENCY)
    wanted = min(slots, len(listed)) if listed is not None else slots
    if client is None or isinstance(client, AgentClient):
        allow_connections(int(wanted))
    engine = Engine(
        iter(examples),
        check=run.check,
        send=run.send,
        finish=run.finish,
        concurrency=slots,
        max_held=2 * slots + 64,
        semaphore=semaphore,
        budget=None if dispatch_budget_s is None else Budget(dispatch_budget_s, drain_margin_s),
        prepare=run.prepare if head_server_config is not None else None,
        cleanup=run.cleanup,
    )
    return RunExamples(engine, run)


class RunExamples(
    Iterator[Coroutine[Any, Any, tuple[Any, Result]]], AsyncIterator[tuple[Any, Result]]
):
    """What `run_examples` returns; see there."""

    def __init__(self, engine: Engine, run: "Steps") -> None:
        self._engine = engine
        self._run = run
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        else:
            engine.start()

    @property
    def enrich_errors(self) -> int:
        """Results that came back as they were because enriching them failed."""
        return self._run.enrich_errors

    @property
    def running(self) -> int:
        """Rows that are with their agent servers now."""
        return self._engine.running

    @property
    def started(self) -> int:
        """Rows sent so far."""
        return self._engine.started

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "_Pending":
        self._start()
        if self._engine.owes_another():
            return _Pending(self)
        error = self._engine.take_source_error()
        if error is not None:
            raise error
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Any, Result]:
        self._start()
        outcome = await self._engine.next()
        if outcome is None:
            error = self._engine.take_source_error()
            if error is not None:
                raise error
            raise StopAsyncIteration
        return _unfold(outcome)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what is left and wait, a few seconds at most, until it has ended."""
        await self._engine.aclose()

    def _start(self) -> None:
        if not self._engine.is_started:
            self._loop = asyncio.get_running_loop()
            self._engine.start()

    def __del__(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or self._engine.is_over or not self._engine.is_started:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            if asyncio._get_running_loop() is loop:  # noqa: SLF001 (None instead of an exception)
                _leave(self._engine)
            else:
                loop.call_soon_threadsafe(_leave, self._engine)


class _Pending(Coroutine[Any, Any, tuple[Any, Result]]):
    """One outcome to come, the next one at the time it is awaited.

    A coroutine by protocol, so that it can be awaited, gathered and made a task of, but
    one that may be dropped without a warning.
    """

    def __init__(self, run: RunExamples) -> None:
        self._run: RunExamples | None = run
        self._coroutine: Coroutine[Any, Any, tuple[Any, Result]] | None = None

    def __await__(self) -> Generator[Any, Any, tuple[Any, Result]]:
        return self._started().__await__()

    def send(self, value: Any) -> Any:
        return self._started(again=True).send(value)

    def throw(self, *error: Any) -> Any:
        return self._started(again=True).throw(*error)

    def close(self) -> None:
        self._run = None
        if self._coroutine is not None:
            self._coroutine.close()

    def _started(self, *, again: bool = False) -> Coroutine[Any, Any, tuple[Any, Result]]:
        if self._run is not None:
            # A spent awaitable that a loop variable still holds must not keep the run alive.
            run, self._run = self._run, None
            self._coroutine = _take(run)
        elif not again or self._coroutine is None:
            raise RuntimeError("this awaitable was awaited already")
        return self._coroutine


async def _take(run: RunExamples) -> tuple[Any, Result]:
    engine = run._engine  # noqa: SLF001 (one class in two parts)
    try:
        outcome = await engine.next_handed()
    finally:
        del run  # an error's traceback that somebody keeps must not keep the run alive
    if outcome is None:
        raise RollfoldError("run_examples was closed before this row was done")
    return _unfold(outcome)


def _unfold(outcome: Outcome) -> tuple[Any, Result]:
    if outcome.error is not None:
        raise outcome.error
    return outcome.row, outcome.result


_leaving: set[asyncio.Task[None]] = set()


def _leave(engine: Engine) -> None:
    """Cancel a run that nobody holds any more, and see it to its end."""
    engine.abandon()
    task = asyncio.get_running_loop().create_task(engine.aclose())
    _leaving.add(task)
    task.add_done_callback(_leaving.discard)


def _directories(capture_dirs: CaptureDirs | None) -> list[Path] | None:
    if capture_dirs is None:
        return None
    if isinstance(capture_dirs, str | os.PathLike):
        return [Path(capture_dirs)]
    return [Path(directory) for directory in capture_dirs]


def _check_arguments(
    *,
    client: object | None,
    head_server_config: object | None,
    refused: bool,
    on_failure: str,
    concurrency: int | None,
    seconds: dict[str, float | None],
) -> None:
    if client is None and head_server_config is None:
        raise ValueError("run_examples needs a client or a head_server_config")
    if refused:
        raise ValueError(
            "delete_model_call_capture with include_model_call_payloads=False would lose the bodies"
        )
    if on_failure not in ("raise", "record"):
        raise ValueError(f"on_failure must be 'raise' or 'record', not {on_failure!r}")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    for name, value in seconds.items():
        if value is None and name in ("dispatch_budget_s", "drain_margin_s"):
            continue
        least_is_zero = name != "run_timeout_s"
        if (
            value is None
            or not math.isfinite(value)
            or value < 0
            or (value == 0 and not least_is_zero)
        ):
            raise ValueError(f"{name} must be a number of seconds, not {value!r}")
