"""One rollout on its way to the core: who it is, what is asked, what was met.

Every form of the enrichment starts here, so that identity, omitted rows and the event
loop's bounds are settled in one place (contract, sections 2, 10 and 11).
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, SupportsFloat

from rollfold import _core, identity

logger = logging.getLogger("rollfold")

Row = Mapping[str, Any]
Result = dict[str, Any]
Dirs = str | PathLike[str] | Sequence[str | PathLike[str]]
Form = Literal["full", "packed"]

NEVER_STARTED = "never_started"
INTERRUPTED = "interrupted"
_LOCK_WAIT_S = 2.0
_LOCK_WAIT_IN_LOOP_S = 0.05

_kept: Counter[str] = Counter()
_kept_lock = threading.Lock()


def stats() -> dict[str, int | float]:
    """Give this process's counters since it started.

    `rollouts`, `calls` and `bytes` that were folded, `records_unreadable`, `wait_s` spent
    waiting for calls and locks, `locks_refused`, `captures_deleted`, and how many captures
    were kept from deletion, by reason (`capture_kept: ...`).
    """
    with _kept_lock:
        return {**_core.counters(), **_kept}


class Options(NamedTuple):
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
    ) -> "Options":
        """Take the options as the public functions have them.

        Raises:
            ValueError: deletion without payloads.
        """
        if delete_capture and not include_payloads:
            raise ValueError("delete_capture: refused with include_payloads=False")
        if isinstance(capture_dirs, str | PathLike):
            capture_dirs = [capture_dirs]
        return cls(
            [fspath(directory) for directory in capture_dirs or ()],
            observability_enabled,
            include_payloads,
            delete_capture,
            _number("quiescence_timeout_s", quiescence_timeout_s),
            _number("foreign_settle_s", foreign_settle_s),
        )


def _number(name: str, value: float) -> float:
    """Give a number that a caller gave, as a float.

    Raises:
        TypeError: it is none.
        OverflowError: no float holds it.
    """
    if isinstance(value, float):
        return value
    if not isinstance(value, int | SupportsFloat):
        raise TypeError(f"{name}: must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError as error:
        raise OverflowError(f"{name}: {error}") from None


class Who(NamedTuple):
    """Who a rollout is, and how its run ended."""

    rollout_id: str | None
    conflict: str | None
    never_started: bool
    interrupted: bool
    failed: bool


def check_form(form: str) -> None:
    """Refuse a form that there is not.

    Raises:
        ValueError: it is neither `full` nor `packed`.
    """
    if form not in {"full", "packed"}:
        raise ValueError(f"form: must be 'full' or 'packed', not {form!r}")


def _check_mapping(name: str, value: object) -> None:
    # A dict is told at once, where the abstract class alone costs a look-up each time.
    if not isinstance(value, (dict, Mapping)):
        raise TypeError(f"{name}: must be a mapping, not {type(value).__name__}")


def identify(row: Row, result: Mapping[str, Any]) -> Who:
    """Tell a rollout from its row and its result.

    Raises:
        RolloutIdError: the identity keys are not valid.
        TypeError: the row or the result is no mapping.
    """
    _check_mapping("row", row)
    _check_mapping("result", result)
    omitted = result.get("_ng_omitted_rollout")
    never_started = omitted == NEVER_STARTED or bool(result.get("_ng_dispatch_drained"))
    rollout_id, conflict = (None, None) if never_started else identity.resolve(row, result)
    return Who(
        rollout_id,
        conflict,
        never_started,
        omitted == INTERRUPTED,
        result.get("_ng_failure_class") is not None,
    )


def request_of(
    options: Options,
    who: Who,
    row: Row,
    result: Mapping[str, Any],
    *,
    latency_ms: float | None,
    not_before: float | None,
    quiescence_s: float | None = None,
    in_flight: bool = False,
) -> _core.Request:
    """Give what the core is asked for one rollout.

    `quiescence_s` is the caller's where it has waited itself, for the file's rest too.
    Inside a running event loop nothing waits for calls, and for a lock 50 ms at most; what
    is not at rest then is looked at all the same, and said in a gap.
    """
    in_loop = asyncio._get_running_loop() is not None  # noqa: SLF001 -- the public one raises
    settle_s = 0.0
    if quiescence_s is None:
        quiescence_s = 0.0 if in_loop else options.quiescence_s
        settle_s = options.settle_s
    return _core.Request(
        options.dirs,
        who.rollout_id or "",
        identity.task_id(row, result),
        who.conflict,
        observability=options.observability,
        payloads=options.payloads,
        latency_ms=None if latency_ms is None else _number("rollout_latency_ms", latency_ms),
        not_before=None if not_before is None else _number("not_before", not_before),
        quiescence_s=quiescence_s,
        settle_s=settle_s,
        lock_wait_s=_LOCK_WAIT_IN_LOOP_S if in_loop else _LOCK_WAIT_S,
        in_flight=in_flight,
        interrupted=who.interrupted,
        failed=who.failed,
        delete=options.delete,
    )


def note(told: Mapping[str, Any] | None, rollout_id: str) -> None:
    """Say what a person should know of what was met on the way."""
    if told is None:
        return
    for line in told["told"]:
        logger.debug("capture not read whole: %s", line)
    if kept := told["kept"]:
        with _kept_lock:
            _kept[f"capture_kept: {kept}"] += 1
        logger.warning("rollout %s: its capture is kept: %s", rollout_id, kept)


def say_without_id(result: Result) -> None:
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


class JsonItem(NamedTuple):
    """A rollout for the JSON forms: who it is, what is known of it, and what the core gets."""

    who: Who
    known: Mapping[str, Any]
    job: tuple[_core.Request | None, _core.Body]


_ASKED = (
    *identity.IDENTITY_KEYS,
    *identity.TASK_ID_KEYS,
    "_ng_omitted_rollout",
    "_ng_dispatch_drained",
    "_ng_failure_class",
)


def json_item(
    options: Options,
    row: Row,
    result: bytes | Result,
    latency_ms: float | None,
    not_before: float | None,
) -> JsonItem:
    """Give a rollout for the JSON forms; neither row nor result is changed."""
    _check_mapping("row", row)
    keys = {key: value for key in identity.IDENTITY_KEYS if (value := row.get(key)) is not None}
    body = None
    known: Mapping[str, Any]
    if isinstance(result, bytes):
        body = _core.Body(result, keys)
        known = body.members(_ASKED)
    else:
        known = result
    who = identify(row, known)
    body = body or _core.Body(known, keys)
    if who.never_started:
        return JsonItem(who, known, (None, body))
    if who.rollout_id is None:
        whole = _core.loads(result) if isinstance(result, bytes) else dict(result)
        say_without_id(whole)
        return JsonItem(who, known, (None, _core.Body(whole, keys)))
    request = request_of(options, who, row, known, latency_ms=latency_ms, not_before=not_before)
    return JsonItem(who, known, (request, body))
