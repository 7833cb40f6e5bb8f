"""Enrich results with what a model server captured (contract, sections 5 to 13).

`enrich_run_result` and its forms are one implementation: identity is settled here, the
rest is the core's. Objects that a result gets may be shared between its calls and turns:
they are to be read; `copy.deepcopy` gives one's own.
"""

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

from rollfold import _core, identity
from rollfold.dialects.anthropic import convert_batch
from rollfold.errors import RolloutIdError

logger = logging.getLogger("rollfold")

Row = Mapping[str, Any]
Result = dict[str, Any]
Dirs = str | PathLike[str] | Sequence[str | PathLike[str]]
Form = Literal["full", "packed"]

NEVER_STARTED = "never_started"
INTERRUPTED = "interrupted"
_LOCK_WAIT_S = 2.0
_LOCK_WAIT_IN_LOOP_S = 0.05
_BATCH = 64

_counters: Counter[str] = Counter()
_counters_lock = threading.Lock()


def stats() -> dict[str, int | float]:
    """Give this process's counters since it started.

    `rollouts`, `calls` and `bytes` that were folded, `records_unreadable`, `wait_s` spent
    waiting for calls and locks, `locks_refused`, `captures_deleted`, and how many captures
    were kept from deletion, by reason (`capture_kept: ...`).
    """
    with _counters_lock:
        return dict(_counters)


class _Options(NamedTuple):
    """What is the same for all rollouts of a batch."""

    dirs: list[str]
    observability: bool
    payloads: bool
    delete: bool
    quiescence_s: float
    settle_s: float

    @classmethod
    def of(  # noqa: PLR0917 -- the fields in order
        cls,
        capture_dirs: Dirs | None,
        observability_enabled: bool,
        include_payloads: bool,
        delete_capture: bool,
        quiescence_timeout_s: float,
        foreign_settle_s: float,
    ) -> "_Options":
        if delete_capture and not include_payloads:
            raise ValueError("delete_capture: refused with include_payloads=False")
        if isinstance(capture_dirs, str | PathLike):
            capture_dirs = [capture_dirs]
        return cls(
            [fspath(directory) for directory in capture_dirs or ()],
            observability_enabled,
            include_payloads,
            delete_capture,
            quiescence_timeout_s,
            foreign_settle_s,
        )


class _Who(NamedTuple):
    """Who a rollout is, and how its run ended."""

    rollout_id: str | None
    conflict: str | None
    never_started: bool
    interrupted: bool
    failed: bool


def _who(row: Row, result: Mapping[str, Any]) -> _Who:
    omitted = result.get("_ng_omitted_rollout")
    never_started = omitted == NEVER_STARTED or bool(result.get("_ng_dispatch_drained"))
    rollout_id, conflict = (None, None) if never_started else identity.resolve(row, result)
    return _Who(
        rollout_id,
        conflict,
        never_started,
        omitted == INTERRUPTED,
        result.get("_ng_failure_class") is not None,
    )


def _request(
    options: _Options,
    who: _Who,
    row: Row,
    result: Mapping[str, Any],
    *,
    latency_ms: float | None,
    not_before: float | None,
    quiescence_s: float | None = None,
    in_flight: bool = False,
) -> _core.Request:
    in_loop = asyncio._get_running_loop() is not None  # noqa: SLF001 -- the public one raises
    if quiescence_s is None:
        quiescence_s = 0.0 if in_loop else options.quiescence_s
    return _core.Request(
        options.dirs,
        who.rollout_id or "",
        identity.task_id(row, result),
        who.conflict,
        observability=options.observability,
        payloads=options.payloads,
        latency_ms=latency_ms,
        not_before=not_before,
        quiescence_s=quiescence_s,
        settle_s=0.0 if in_loop else options.settle_s,
        lock_wait_s=_LOCK_WAIT_IN_LOOP_S if in_loop else _LOCK_WAIT_S,
        in_flight=in_flight,
        interrupted=who.interrupted,
        failed=who.failed,
        delete=options.delete,
    )


def _note(report: Mapping[str, Any], rollout_id: str) -> None:
    """Count what was met on the way, and say what a person should know."""
    with _counters_lock:
        _counters["rollouts"] += 1
        _counters["calls"] += report["calls"]
        _counters["bytes"] += report["bytes"]
        _counters["records_unreadable"] += report["unreadable"]
        _counters["wait_s"] += report["waited_s"]
        _counters["locks_refused"] += report["lock_unavailable"]
        _counters["captures_deleted"] += report["deleted"]
        if report["kept"]:
            _counters[f"capture_kept: {report['kept']}"] += 1
    for line in report["told"]:
        logger.debug("capture not read whole: %s", line)
    if report["kept"]:
        logger.warning("rollout %s: its capture is kept: %s", rollout_id, report["kept"])


def _without_id(result: Result) -> None:
    """Say that a rollout cannot be told, where its result has a place for it."""
    gap = {"code": "rollout_identity_unavailable", "invocation_id": None, "detail": None}
    observations = result.get("ng_agent_observations")
    capture = result.get("ng_model_call_capture")
    if isinstance(capture, Mapping):
        gaps = capture.get("gaps") or []
        if not any(_code(other) == gap["code"] for other in gaps):
            result["ng_model_call_capture"] = {**capture, "gaps": [*gaps, {"code": gap["code"]}]}
    elif isinstance(observations, Mapping) and isinstance(observations.get("gaps", []), list):
        gaps = observations.get("gaps", [])
        if not any(_code(other) == gap["code"] for other in gaps):
            result["ng_agent_observations"] = {**observations, "gaps": [*gaps, gap]}
    else:
        logger.warning("a row without a rollout id: no trajectory (rollout_identity_unavailable)")


def _code(gap: object) -> object:
    return gap.get("code") if isinstance(gap, Mapping) else None


def enrich_run_result(
    row: Row,
    result: Result,
    *,
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    rollout_latency_ms: float | None = None,
    delete_capture: bool = False,
    not_before: float | None = None,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Result:
    """Enrich one result, in place, with its rollout's captured calls.

    Args:
        row: the row as it was dispatched.
        result: what the agent server's `/run` returned; a dict. Only top-level keys are
            set: identity keys it lacks, `ng_model_call_capture`, `ng_agent_observations`,
            `ng_trajectory`, `ng_perf` and `_ng_trajectory_source`.
        capture_dirs: directories with capture files; none: nothing is merged or joined.
        observability_enabled: whether `ng_perf` is wanted.
        include_payloads: whether calls keep their bodies (without them there are no turns).
        rollout_latency_ms: milliseconds from dispatch to result.
        delete_capture: remove the attempt's files after the merge (contract, section 12).
        not_before: Unix seconds; exchanges that started earlier are stale.
        quiescence_timeout_s: seconds to wait for calls still in flight, at most. Inside a
            running event loop there is no such wait: use `enrich_run_result_async`.
        foreign_settle_s: seconds that the file of a writer which announces nothing must
            not have grown for.

    Returns:
        The result itself.

    Raises:
        RolloutIdError: the row's (or the result's) identity keys are not valid.
        ValueError: `delete_capture` without payloads.
    """
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    return _enrich(options, row, result, rollout_latency_ms, not_before)


def _enrich(
    options: _Options,
    row: Row,
    result: Result,
    latency_ms: float | None,
    not_before: float | None,
    *,
    quiescence_s: float | None = None,
    in_flight: bool = False,
) -> Result:
    who = _who(row, result)
    identity.copy_identity(row, result)
    if who.never_started:
        return result
    if who.rollout_id is None:
        _without_id(result)
        return result
    request = _request(
        options,
        who,
        row,
        result,
        latency_ms=latency_ms,
        not_before=not_before,
        quiescence_s=quiescence_s,
        in_flight=in_flight,
    )
    _fold(request, result, who.rollout_id)
    return result


def _fold(request: _core.Request, result: Result, rollout_id: str) -> None:
    report = _core.fold_dict(request, result, convert_batch)
    _note(report, rollout_id)


async def enrich_run_result_async(
    row: Row,
    result: Result,
    *,
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    rollout_latency_ms: float | None = None,
    delete_capture: bool = False,
    not_before: float | None = None,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Result:
    """Do what `enrich_run_result` does, off the event loop; waits are the loop's timers.

    Args, result and errors are those of `enrich_run_result`.
    """
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    in_flight = await _quiet(options, row, result)
    return await asyncio.to_thread(
        _enrich,
        options,
        row,
        result,
        rollout_latency_ms,
        not_before,
        quiescence_s=0.0,
        in_flight=in_flight,
    )


async def _quiet(options: _Options, row: Row, result: Mapping[str, Any]) -> bool:
    """Wait, on the loop's timers, until no call is in flight; say whether some still are."""
    if not options.dirs:
        return False
    who = _who(row, result)
    if who.rollout_id is None:
        return False
    request = _request(options, who, row, result, latency_ms=None, not_before=None)
    watch = _core.Watch(request, options.quiescence_s, options.settle_s)
    while True:
        pause, in_flight = watch.step()
        if pause is None:
            return in_flight
        await asyncio.sleep(pause)


def enrich_run_result_json(  # noqa: D417 -- the rest is said where it points to
    row: Row,
    result: bytes | Result,
    *,
    form: Form = "full",
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    rollout_latency_ms: float | None = None,
    delete_capture: bool = False,
    not_before: float | None = None,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> bytes:
    """Enrich one result into JSON, without building objects for its payloads.

    Args:
        row: the row as it was dispatched.
        result: the body of `/run` as it came, or a dict; neither is changed.
        form: `full`: the record; `packed`: each distinct part once (docs/packed.md).
        capture_dirs: and the rest: as in `enrich_run_result`.

    Returns:
        One line of strict JSON without its newline, equal as JSON values to
        `rollfold.dumps` of what `enrich_run_result` gives.

    Raises:
        ValueError: the result is no strict JSON object, or as `enrich_run_result`.
    """
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    item = _json_item(options, row, result, rollout_latency_ms, not_before)
    (outcome,) = _core.fold_batch([item.job], form, 1, convert_batch)
    if isinstance(outcome, BaseException):
        raise outcome
    text: bytes
    text, report = outcome
    if item.rollout_id is not None:
        _note(report, item.rollout_id)
    return text


def prepare_enriched(  # noqa: D417 -- the rest is said where it points to
    row: Row,
    result: bytes | Result,
    form: Form,
    level: int | None,
    *,
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    rollout_latency_ms: float | None = None,
    not_before: float | None = None,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> _core.LogFrames:
    """Enrich one result into what a log's file gets; see `RolloutLog.append_enriched`.

    Args:
        row: the row as it was dispatched.
        result: the body of `/run` as it came, or a dict; neither is changed.
        form: the log's.
        level: of its compression, None for plain lines.
        capture_dirs: and the rest: as in `enrich_run_result`.

    Raises:
        ValueError: as `enrich_run_result_json`.
    """
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        False,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    item = _json_item(options, row, result, rollout_latency_ms, not_before)
    known = _core.members(result, _ASKED) if isinstance(result, bytes) else dict(result)
    never_started = _who(row, known).never_started
    # The record's own keys count, where row and result disagree.
    identity.copy_identity(row, known)
    try:
        rollout_id = identity.rollout_id(known)
    except RolloutIdError:
        rollout_id = None
    log = (level, [(rollout_id, never_started)])
    (outcome,) = _core.fold_batch([item.job], form, 1, convert_batch, log)
    if isinstance(outcome, BaseException):
        raise outcome
    frames: _core.LogFrames
    frames, report = outcome
    if item.rollout_id is not None:
        _note(report, item.rollout_id)
    return frames


class _JsonItem(NamedTuple):
    rollout_id: str | None
    job: tuple[_core.Request | None, bytes | Result, dict[str, Any]]


_ASKED = [*identity.IDENTITY_KEYS, *identity.TASK_ID_KEYS]
_ASKED += ["_ng_omitted_rollout", "_ng_dispatch_drained", "_ng_failure_class"]


def _json_item(
    options: _Options,
    row: Row,
    result: bytes | Result,
    latency_ms: float | None,
    not_before: float | None,
) -> _JsonItem:
    known: Mapping[str, Any]
    known = _core.members(result, _ASKED) if isinstance(result, bytes) else result
    who = _who(row, known)
    keys = {key: row[key] for key in identity.IDENTITY_KEYS if row.get(key) is not None}
    if who.never_started:
        return _JsonItem(None, (None, result, keys))
    if who.rollout_id is None:
        whole = _core.loads(result) if isinstance(result, bytes) else dict(result)
        _without_id(whole)
        return _JsonItem(None, (None, whole, keys))
    request = _request(options, who, row, known, latency_ms=latency_ms, not_before=not_before)
    return _JsonItem(who.rollout_id, (request, result, keys))


Item = tuple[Row, Any] | Mapping[str, Any]


def _unpack(item: Item) -> tuple[Row, Any, float | None, float | None]:
    if isinstance(item, Mapping):
        return item["row"], item["result"], item.get("rollout_latency_ms"), item.get("not_before")
    row, result = item
    return row, result, None, None


def enrich_run_results_json(  # noqa: D417 -- the rest is said where it points to
    items: Iterable[Item],
    *,
    threads: int | None = None,
    form: Form = "full",
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    delete_capture: bool = False,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Iterator[bytes | Exception]:
    """Enrich many results into JSON, in order.

    Args:
        items: `(row, result)`, or mappings with `row`, `result` and, where wanted,
            `rollout_latency_ms` and `not_before`; drawn as they are needed.
        threads: how many, 1 where it is None; they live as long as one step.
        form: and the rest: as in `enrich_run_result_json`. The whole batch waits
            `quiescence_timeout_s` at most.

    Yields:
        The JSON of each, or the exception that a row cost; the others go on.
    """
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    return _results_json(items, options, threads or 1, form)


def _results_json(
    items: Iterable[Item], options: _Options, threads: int, form: Form
) -> Iterator[bytes | Exception]:
    source = iter(items)
    waiting: deque[_JsonItem | Exception] = deque()
    left = options.quiescence_s
    while True:
        while len(waiting) < _BATCH and (item := next(source, None)) is not None:
            try:
                row, result, latency_ms, not_before = _unpack(item)
                step = options._replace(quiescence_s=max(left, 0.0))
                waiting.append(_json_item(step, row, result, latency_ms, not_before))
            except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
                waiting.append(error)
        if not waiting:
            return
        if isinstance(waiting[0], Exception):
            yield waiting.popleft()  # type: ignore[misc]
            continue
        batch: list[_JsonItem] = []
        for entry in waiting:
            if isinstance(entry, Exception):
                break
            batch.append(entry)
        outcomes = _core.fold_batch([entry.job for entry in batch], form, threads, convert_batch)
        for entry, outcome in zip(batch, outcomes, strict=False):
            waiting.popleft()
            if isinstance(outcome, Exception):
                yield outcome
                continue
            text, report = outcome
            left -= report["waited_s"]
            if entry.rollout_id is not None:
                _note(report, entry.rollout_id)
            yield text


def enrich_run_results(  # noqa: D417 -- the rest is said where it points to
    items: Iterable[Item],
    *,
    threads: int | None = None,
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    delete_capture: bool = False,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Iterator[Result | Exception]:
    """Enrich many results in place, in order.

    Args:
        items: as in `enrich_run_results_json`, the results dicts.
        threads: accepted for symmetry: building objects holds the interpreter, so this
            form works on one.
        capture_dirs: and the rest: as in `enrich_run_result`. The whole batch waits
            `quiescence_timeout_s` at most.

    Yields:
        Each result, or the exception that a row cost; the others go on.
    """
    del threads
    options = _Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    return _results(items, options)


def _results(items: Iterable[Item], options: _Options) -> Iterator[Result | Exception]:
    left = options.quiescence_s
    for item in items:
        before = stats().get("wait_s", 0.0)
        step = options._replace(quiescence_s=max(left, 0.0))
        try:
            row, result, latency_ms, not_before = _unpack(item)
            outcome: Result | Exception = _enrich(step, row, result, latency_ms, not_before)
        except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
            outcome = error
        left -= stats().get("wait_s", 0.0) - before
        yield outcome
