"""The stages after the merge, usable alone (contract, sections 6 to 9).

They are the stages of `enrich_run_result`, run on the capture that a result already
holds (`merge_model_call_capture_into_record` puts it there) instead of on files.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from os import PathLike
from typing import Any

from rollfold import _core, identity
from rollfold.dialects import TurnContent, turn_content
from rollfold.dialects.anthropic import convert_batch

__all__ = [
    "TurnContent",
    "attach_ng_perf",
    "attach_trajectory_record",
    "build_trajectory_record",
    "has_observation_gap",
    "join_model_call_observations",
    "merge_model_call_capture_into_record",
    "trajectory_identity",
    "turn_content",
    "turns_from_model_calls",
]

Json = dict[str, Any]

_BODIES = ("request", "response")


def trajectory_identity(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Give the task id and the rollout id that a row's trajectory carries.

    Raises:
        RolloutIdError: the row's identity keys are not valid (contract, section 2).
    """
    return identity.task_id(row), identity.rollout_id(row)


def build_trajectory_record(row: Mapping[str, Any], result: Mapping[str, Any]) -> Json:
    """Give the trajectory of a result from the capture and the observations it holds.

    Args:
        row: the row as it was dispatched.
        result: a result with `ng_model_call_capture` (calls with their bodies),
            `ng_agent_observations` or `ng_trajectory`; it is not changed.

    Raises:
        ValueError: the row has no rollout id, or the result nothing to project.
    """
    trajectory = _stages(row, result).get("ng_trajectory")
    if not isinstance(trajectory, dict):
        raise ValueError(  # noqa: TRY004 -- nothing has a wrong type, something is missing
            "result: no capture, observations or trajectory to project"
        )
    return trajectory


def attach_trajectory_record(row: Mapping[str, Any], result: MutableMapping[str, Any]) -> None:
    """Attach the trajectory in place, as `enrich_run_result` does; never raises.

    The bodies move from the capture's calls to the trajectory. What goes wrong is the gap
    `trajectory_projection_failed` with the error's type (contract, section 7).
    """
    try:
        made = _stages(row, result)
        if isinstance(made.get("ng_trajectory"), dict):
            for key in ("ng_model_call_capture", "ng_trajectory", "_ng_trajectory_source"):
                if key in made:
                    result[key] = made[key]
    except Exception as error:  # noqa: BLE001 -- a record is worth more than its trajectory
        _attach_failure(result, type(error).__name__)


def _attach_failure(result: MutableMapping[str, Any], detail: str) -> None:
    code = "trajectory_projection_failed"
    whole = {"code": code, "invocation_id": None, "detail": detail}
    short = {"code": code, "detail": detail}
    for key, gap in (("ng_model_call_capture", short), ("ng_agent_observations", whole)):
        part = result.get(key)
        if isinstance(part, Mapping):
            gaps = part.get("gaps")
            kept = gaps if isinstance(gaps, list) else []
            result[key] = {**part, "gaps": [*kept, gap]}
            return
    result["ng_trajectory"] = {
        "schema_version": "1.1",
        "task_id": None,
        "rollout_id": None,
        "invocations": [],
        "turns": [],
        "model_calls": [],
        "tool_calls": [],
        "gaps": [whole],
    }


def _stages(row: Mapping[str, Any], result: Mapping[str, Any], **options: Any) -> Json:
    """Run the stages after the merge on a shallow copy of the result."""
    made = dict(result)
    rollout_id, conflict = identity.resolve(row, result)
    if rollout_id is None:
        raise ValueError("row: no rollout id (contract, section 2)")
    request = _core.Request(
        [],
        rollout_id,
        identity.task_id(row, result),
        conflict,
        mode="record" if isinstance(result.get("ng_model_call_capture"), Mapping) else "files",
        **{"observability": False, **options},
    )
    _core.fold_dict(request, made, convert_batch)
    return made


def turns_from_model_calls(  # noqa: PLR0917 -- the interface is NeMo Gym's
    task_id: str | None,
    rollout_id: str,
    invocations: Iterable[Mapping[str, Any]],
    model_calls: Iterable[Mapping[str, Any]],
    resolved: bool | None,
    verifier_invocations: Iterable[Mapping[str, Any]] = (),
    compactions: Iterable[Mapping[str, Any]] = (),
) -> list[Json]:
    """Give the turns of a trajectory's model calls (contract, section 8).

    Args:
        task_id: the trajectory's, None where it is not known.
        rollout_id: the trajectory's.
        invocations: with references that name the calls.
        model_calls: as a trajectory holds them, bodies included.
        resolved: for the last turn; None where it is not known.
        verifier_invocations: whose calls are no turns.
        compactions: whose `model_calls` are no turns.

    Raises:
        RolloutIdError: the rollout id is not valid.

    Malformed invocations, compactions and calls give no turns, as in an enrichment.
    """
    records = [_of_kind("agent_invocation", record) for record in invocations]
    records += [_of_kind("context_compaction", record) for record in compactions]
    result: Json = {
        "ng_agent_observations": {"source": "caller", "records": records, "gaps": []},
        "ng_model_call_capture": {"calls": [_call_record(call) for call in model_calls]},
        "ng_verifier_invocations": list(verifier_invocations),
        "resolved": resolved,
    }
    row = {identity.ROLLOUT_ID: rollout_id, "task_id": task_id}
    turns = build_trajectory_record(row, result)["turns"]
    return list(turns)


def _of_kind(kind: str, record: object) -> object:
    """Give an observation of a kind; what is no object stays, and is malformed as such."""
    return {**record, "kind": kind} if isinstance(record, Mapping) else record


def _call_record(call: object) -> object:
    """Give a trajectory's model call as the call record that it came from."""
    if not isinstance(call, Mapping):
        return call
    metadata = call.get("response_metadata")
    record = {
        **(metadata if isinstance(metadata, Mapping) else {}),
        **{key: call.get(key) for key in ("model_call_id", *_TIMES)},
    }
    record["latency_total_ms"] = call.get("duration_ms")
    for body in _BODIES:
        value = call.get(body)
        record[f"{body}_raw" if isinstance(value, str) else body] = value
    return record


_TIMES = ("started_at", "completed_at")


def has_observation_gap(result: Mapping[str, Any], code: str) -> bool:
    """Say whether a result's observations or trajectory carry a gap of this code."""
    for key in ("ng_agent_observations", "ng_trajectory"):
        part = result.get(key)
        gaps = part.get("gaps") if isinstance(part, Mapping) else None
        for gap in gaps if isinstance(gaps, list) else ():
            if isinstance(gap, Mapping) and gap.get("code") == code:
                return True
    return False


def attach_ng_perf(
    result: MutableMapping[str, Any],
    *,
    observability_enabled: bool,
    rollout_latency_ms: float | None = None,
) -> None:
    """Attach `ng_perf` of the trajectory that a result holds (contract, section 9).

    Nothing is attached with observability off, or without a well-formed trajectory that
    has invocations.
    """
    trajectory = result.get("ng_trajectory")
    if not observability_enabled or not isinstance(trajectory, Mapping):
        return
    part: Json = {"ng_trajectory": trajectory}
    part["ng_verifier_invocations"] = result.get("ng_verifier_invocations")
    if "_ng_trajectory_source" in result:
        # Two sides met in it: what each says of the other is not judged again.
        part["_ng_trajectory_source"] = "agent"
    request = _core.Request(
        [], "perf", None, None, observability=True, latency_ms=rollout_latency_ms
    )
    _core.fold_dict(request, part, convert_batch)
    if "ng_perf" in part:
        result["ng_perf"] = part["ng_perf"]


def join_model_call_observations(
    bundle: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]
) -> Json:
    """Join observations with call records (contract, section 6).

    Args:
        bundle: an `ng_agent_observations`; it is not changed.
        calls: call records, as `ng_model_call_capture.calls` holds them.

    Returns:
        The bundle with its references resolved and the join's gaps.

    Raises:
        ValueError: the bundle is malformed.
    """
    result = {"ng_agent_observations": bundle, "ng_model_call_capture": {"calls": list(calls)}}
    made = _stages({identity.ROLLOUT_ID: "join"}, result)
    if made["ng_agent_observations"] is bundle:
        raise ValueError("ng_agent_observations: malformed (contract, section 6)")
    joined: Json = made["ng_agent_observations"]
    return joined


def merge_model_call_capture_into_record(
    record: MutableMapping[str, Any],
    capture_dirs: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    include_payloads: bool = False,
) -> MutableMapping[str, Any]:
    """Merge a record's captured calls into it, in place, and nothing else.

    Args:
        record: a result that holds its identity keys.
        capture_dirs: directories with capture files.
        include_payloads: whether the calls keep their bodies.

    Returns:
        The record itself, with `ng_model_call_capture` where it has a rollout id.

    Raises:
        RolloutIdError: its identity keys are not valid.
        TypeError: it is no mapping.
    """
    if not isinstance(record, Mapping):
        raise TypeError(f"record: must be a mapping, not {type(record).__name__}")
    rollout_id = identity.rollout_id(record)
    if rollout_id is None:
        return record
    dirs = [capture_dirs] if isinstance(capture_dirs, str | PathLike) else list(capture_dirs)
    part = {"ng_model_call_capture": record.get("ng_model_call_capture")}
    request = _core.Request(
        dirs, rollout_id, None, None, observability=False, payloads=include_payloads, mode="merge"
    )
    _core.fold_dict(request, part, convert_batch)
    record["ng_model_call_capture"] = part["ng_model_call_capture"]
    return record
