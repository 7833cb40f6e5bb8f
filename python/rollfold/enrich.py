"""Enrich a result with what a model server captured (contract, sections 5 to 13).

Objects that a result gets may be shared between its calls and turns: they are to be
read; `copy.deepcopy` gives one's own. For many results see `rollfold.enrich_many`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from rollfold import _core, identity
from rollfold.dialects.anthropic import convert_batch, convert_batch_json
from rollfold.errors import RolloutIdError
from rollfold.rollout import (
    Dirs,
    Form,
    Options,
    Result,
    Row,
    check_form,
    identify,
    json_item,
    note,
    request_of,
    say_without_id,
)


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
            not have grown for, within the same wait. What is not at rest when the wait
            ends is said in the gap `model_call_capture_not_quiescent`.

    Returns:
        The result itself.

    Raises:
        RolloutIdError: the row's (or the result's) identity keys are not valid.
        ValueError: `delete_capture` without payloads.
    """
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    prepared = prepare_one(options, row, result, rollout_latency_ms, not_before)
    if prepared is not None:
        note(prepared.fold(), prepared.rollout_id)
    return result


class Prepared(NamedTuple):
    """A rollout whose identity is settled, ready to be folded."""

    rollout_id: str
    request: _core.Request
    result: Result

    def fold(self, wait_s: float | None = None) -> Mapping[str, Any] | None:
        """Fold into the result, in place; give what is to be told of it, if anything.

        Args:
            wait_s: a bound on all waiting, for a batch that has less left.
        """
        return _core.fold_dict(self.request, self.result, convert_batch, wait_s)


def prepare_one(
    options: Options,
    row: Row,
    result: Result,
    latency_ms: float | None,
    not_before: float | None,
    *,
    quiescence_s: float | None = None,
    in_flight: bool = False,
) -> Prepared | None:
    """Settle a rollout's identity; None where there is nothing to fold.

    Args:
        options: of the batch.
        row: the row as it was dispatched.
        result: what its run returned.
        latency_ms: from dispatch to result.
        not_before: Unix seconds.
        quiescence_s: seconds to wait for calls, where the caller knows better.
        in_flight: whether the caller has waited and calls still are.
    """
    rollout = identify(row, result)
    identity.copy_identity(row, result)
    if rollout.never_started:
        return None
    if rollout.rollout_id is None:
        say_without_id(result)
        return None
    request = request_of(
        options,
        rollout,
        row,
        result,
        latency_ms=latency_ms,
        not_before=not_before,
        quiescence_s=quiescence_s,
        in_flight=in_flight,
    )
    return Prepared(rollout.rollout_id, request, result)


def _enrich_waited(
    options: Options,
    row: Row,
    result: Result,
    latency_ms: float | None,
    not_before: float | None,
    *,
    in_flight: bool,
) -> None:
    """Enrich one result, in place, whose calls the caller has waited for."""
    prepared = prepare_one(
        options, row, result, latency_ms, not_before, quiescence_s=0.0, in_flight=in_flight
    )
    if prepared is not None:
        note(prepared.fold(), prepared.rollout_id)


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
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    in_flight = await _quiet(options, row, result)
    await asyncio.to_thread(
        _enrich_waited, options, row, result, rollout_latency_ms, not_before, in_flight=in_flight
    )
    return result


async def _quiet(options: Options, row: Row, result: Mapping[str, Any]) -> bool:
    """Wait, on the loop's timers, until no call is in flight; say whether some still are."""
    if not options.dirs:
        return False
    rollout = identify(row, result)
    if rollout.rollout_id is None:
        return False
    request = request_of(options, rollout, row, result, latency_ms=None, not_before=None)
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
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    check_form(form)
    item = json_item(options, row, result, rollout_latency_ms, not_before)
    (outcome,) = _core.fold_batch([item.job], form, 1, convert_batch_json)
    if isinstance(outcome, BaseException):
        raise outcome
    text: bytes
    text, told = outcome
    note(told, item.who.rollout_id or "")
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
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        False,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    item = json_item(options, row, result, rollout_latency_ms, not_before)
    known = dict(item.known)
    # The record's own keys count, where row and result disagree.
    identity.copy_identity(row, known)
    try:
        rollout_id = identity.rollout_id(known)
    except RolloutIdError:
        rollout_id = None
    log = (level, [(rollout_id, item.who.never_started)])
    (outcome,) = _core.fold_batch([item.job], form, 1, convert_batch_json, log=log)
    if isinstance(outcome, BaseException):
        raise outcome
    frames: _core.LogFrames
    frames, told = outcome
    note(told, item.who.rollout_id or "")
    return frames
