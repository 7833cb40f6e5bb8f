"""Models of what Rollfold reads and writes, for typed access (contract, sections 3 to 11).

The fold itself never builds one of these. They are strict where the contract is: no
numeric string, no bool and no NaN passes for a number, listed values are the only ones,
a null key counts as a missing one. Unknown keys are kept (`model_extra`), those of an
exchange are ignored.

    >>> from rollfold.records import Trajectory
    >>> Trajectory.model_validate(result["ng_trajectory"]).turns[0].question
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

CallDialect = Literal["responses", "chat", "messages"]
InvocationStatus = Literal["completed", "failed", "incomplete", "unknown"]
ToolCallStatus = Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"]
TimingSource = Literal["executor", "artifact", "harness"]
CompactionOutcome = Literal["completed", "failed", "aborted", "unknown"]
SandboxRole = Literal["agent", "verifier", "environment"]
SandboxOutcome = Literal[
    "completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"
]
ResponseSource = Literal["upstream", "local"]
CaptureGapCode = Literal[
    "model_call_capture_no_records",
    "model_call_capture_records_unreadable",
    "model_call_capture_incomplete",
    "model_call_capture_unreadable",
    "model_call_capture_not_quiescent",
    "model_call_capture_lock_unavailable",
    "model_call_duplicate",
    "model_call_capture_late_records",
    "model_call_capture_stale_records",
    "rollout_identity_conflict",
    "rollout_interrupted",
    "rollout_identity_unavailable",
    "agent_observation_join_failed",
    "trajectory_projection_failed",
]

Count = Annotated[int, Field(ge=0)]
Duration = Annotated[float, Field(ge=0)]
JsonObject = dict[str, Any]


class Record(BaseModel):
    """Base of every model here."""

    model_config = ConfigDict(
        strict=True, allow_inf_nan=False, extra="allow", protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = cls.model_fields
            return {
                key: inner for key, inner in value.items() if inner is not None or key not in known
            }
        return value


class ModelRef(Record):
    """Which model server took a call (section 3); it has no other key."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["responses_api_models"]
    name: str


# --- captures (sections 3 to 5) ---------------------------------------------------------


class Exchange(Record):
    """One model call as the model server saw it: a line of a capture file (section 3).

    Times are Unix seconds, latencies milliseconds.
    """

    model_config = ConfigDict(extra="ignore")

    model_call_id: str | None = None
    dialect: str | None = None
    model_ref: ModelRef | None = None
    started_at: float | None = None
    completed_at: float | None = None
    latency_ms: float | None = None
    latency_ttft_ms: float | None = None
    status_code: int | None = None
    error_category: str | None = None
    request: JsonObject | None = None
    response: JsonObject | None = None
    client_session_id: str | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    upstream_attempted: bool | None = None
    response_source: ResponseSource | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None

    @field_validator("request", "response", mode="before")
    @classmethod
    def _no_object_reads_as_null(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else None

    @field_validator("request_raw", "response_raw", mode="before")
    @classmethod
    def _no_string_reads_as_null(cls, value: Any) -> Any:
        return value if isinstance(value, str) else None


class CapturedToolCall(Record):
    """One tool call that a response asks for (section 4), ids and names as they came."""

    call_id: Any = None
    name: Any = None
    arguments: Any = None


class CallRecord(Record):
    """What is derived from one exchange: `ng_model_call_capture.calls[i]` (section 4)."""

    model_call_id: str | None = None
    response_id: str | None = None
    client_session_id: str | None = None
    call_index: Count
    model_ref: ModelRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: ResponseSource | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_reasoning: Count | None = None
    tokens_total: Count | None = None
    request: JsonObject | None = None
    response: JsonObject | None = None
    request_raw: str | None = None
    response_raw: str | None = None
    tool_calls: list[CapturedToolCall]
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    error_category: str | None = None
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None


class Metrics(Record):
    """Sums over the calls that knew a value, null where none did (section 5)."""

    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_reasoning: Count | None = None
    tokens_total: Count | None = None
    cached_tokens: Count | None = None
    latency_total_ms: float | None = None
    num_calls: Count


class CaptureGap(Record):
    """What the capture could not say; the known codes are `CaptureGapCode` (section 5)."""

    code: str
    detail: str | None = None


class Capture(Record):
    """The merge of one rollout's calls: `ng_model_call_capture` (section 5)."""

    rollout_id: str
    metrics: Metrics
    calls: list[CallRecord]
    metrics_coverage: dict[str, Count] | None = None
    gaps: list[CaptureGap] = Field(default_factory=list)


# --- observations (section 6) -----------------------------------------------------------


class Gap(Record):
    """A fact that could not be observed or joined, everywhere but in the capture."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class Reference(Record):
    """Names one model call: by its id, or by its model server and response id."""

    model_call_id: str | None = None
    model_ref: ModelRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if not self.model_call_id and not (self.model_ref and self.response_id):
            raise ValueError("a reference needs a model_call_id, or model_ref and response_id")
        return self


class AgentInvocation(Record):
    """One conversation of the root agent or of a subagent; `duration_ms` in milliseconds."""

    kind: Literal["agent_invocation"]
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: InvocationStatus = "unknown"
    duration_ms: Duration | None = None
    error_type: str | None = None
    model_calls: list[Reference] = Field(default_factory=list)
    conversation: list[Any] = Field(default_factory=list)


class ToolCall(Record):
    """One tool call as the harness saw it; times in Unix seconds, `duration_ms` in ms.

    In a trajectory it also has the `output` of the conversation's item (section 7).
    """

    kind: Literal["tool_call"]
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Duration | None = None
    timing_source: TimingSource | None = None
    status: ToolCallStatus = "unknown"
    error_type: str | None = None
    output: Any = None

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if None not in (self.started_at, self.completed_at) and (
            self.completed_at < self.started_at  # type: ignore[operator] # both are known here
        ):
            raise ValueError("completed_at is before started_at")
        return self


class ContextCompaction(Record):
    """One compaction of an invocation's context, and the calls around and in it."""

    kind: Literal["context_compaction"]
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    outcome: CompactionOutcome = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: Reference | None = None
    model_calls: list[Reference] = Field(default_factory=list)
    after_model_call: Reference | None = None


class Sandbox(Record):
    """One sandbox; times in seconds, memory in MiB."""

    kind: Literal["sandbox"]
    role: SandboxRole
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: SandboxOutcome = "unknown"
    exit_code: int | None = None
    wall_time_s: Duration | None = None
    cpu_time_s: Duration | None = None
    peak_memory_mib: Duration | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class UnknownObservation(Record):
    """A record of a kind that came later: kept as it came."""

    kind: str


OBSERVATIONS: dict[str, type[Record]] = {
    "agent_invocation": AgentInvocation,
    "tool_call": ToolCall,
    "context_compaction": ContextCompaction,
    "sandbox": Sandbox,
}


def _of_its_kind(value: Any) -> Any:
    """Validate a record as its kind alone, so that an error speaks of that kind alone."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind")
    model = OBSERVATIONS.get(kind, UnknownObservation) if isinstance(kind, str) else Record
    if model is Record:
        raise ValueError("a record needs a kind")
    return model.model_validate(value)


Observation = Annotated[
    AgentInvocation | ToolCall | ContextCompaction | Sandbox | UnknownObservation,
    BeforeValidator(_of_its_kind),
]


class Observations(Record):
    """What the agent harness itself reported: `ng_agent_observations` (section 6)."""

    source: str
    records: list[Observation] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _invocations_form_trees(self) -> Self:
        _check_invocations([one for one in self.records if isinstance(one, AgentInvocation)])
        return self


class VerifierInvocation(Record):
    """A judge that made model calls: one of `ng_verifier_invocations` (section 6)."""

    invocation_id: str
    verifier: str | None = None
    status: InvocationStatus = "unknown"
    duration_ms: Duration | None = None
    model_calls: list[Reference] = Field(default_factory=list)


# --- the trajectory (sections 7 to 9) ---------------------------------------------------


class Turn(Record):
    """One model decision of an invocation (section 8); `timestamp` in Unix seconds."""

    invocation_id: str
    task_id: str | None = None
    rollout_id: str
    turn_no: Annotated[int, Field(ge=1)]
    timestamp: float
    question: Any = None
    answer: Any = None
    reasoning_content: Any = None
    resolved: bool | None = None
    step_count: Count
    model_calls: list[Reference] = Field(default_factory=list)


class ResponseMetadata(Record):
    """What is known of a call's response beside its body (section 7)."""

    response_id: str | None = None
    model_ref: ModelRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: ResponseSource | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: Duration | None = None


class TokenStats(Record):
    """Tokens of one call (section 7)."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None
    cached_tokens: Count | None = None


class ModelCall(Record):
    """One physical model call of a trajectory; a body that was no JSON object is a string."""

    model_call_id: str | None = None
    started_at: Duration | None = None
    completed_at: Duration | None = None
    duration_ms: Duration | None = None
    request: JsonObject | str | None = None
    response: JsonObject | str | None = None
    response_metadata: ResponseMetadata = Field(default_factory=ResponseMetadata)
    token_stats: TokenStats = Field(default_factory=TokenStats)


class Trajectory(Record):
    """The projection of one rollout: `ng_trajectory` (section 7).

    `schema_version` is "1.1" where `task_id` is null, which "1.0" forbids.
    """

    schema_version: Literal["1.0", "1.1"] = "1.0"
    task_id: str | None = None
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    model_calls: list[ModelCall] = Field(default_factory=list)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _ids_are_used_once(self) -> Self:
        if self.task_id is None and self.schema_version == "1.0":
            raise ValueError("schema_version 1.0 needs a task_id")
        _check_invocations(self.invocations)
        calls = [call.model_call_id for call in self.model_calls if call.model_call_id]
        _check_unique("model call", calls)
        _check_unique("turn", [(turn.invocation_id, turn.turn_no) for turn in self.turns])
        return self


class Perf(Record):
    """What a rollout cost: `ng_perf` (section 9); the latency in milliseconds."""

    num_turns: Count
    num_tool_calls: Count
    token_observability_coverage: Annotated[float, Field(ge=0, le=1)]
    prompt_tokens: Count | None = None
    cached_prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_latency_ms: Duration | None = None


# --- results (sections 1, 2 and 11) -----------------------------------------------------


class EnrichedResult(Record):
    """A result with what Rollfold attached; everything else of it is in `model_extra`."""

    ng_model_call_capture: Capture | None = None
    ng_agent_observations: Observations | None = None
    ng_verifier_invocations: list[VerifierInvocation] | None = None
    ng_trajectory: Trajectory | None = None
    ng_perf: Perf | None = None


class FailureRecord(EnrichedResult):
    """A row whose `/run` failed: it counts as executed, and has no reward (section 11)."""

    failure_class: str = Field(alias="_ng_failure_class")


class OmittedRecord(EnrichedResult):
    """A row that was never started, or interrupted before it gave a result (section 11)."""

    omitted: Literal["never_started", "interrupted"] = Field(alias="_ng_omitted_rollout")


def _check_unique(what: str, ids: list[Any]) -> None:
    seen = set()
    for one in ids:
        if one in seen:
            raise ValueError(f"repeated {what} id: {one}")
        seen.add(one)


def _check_invocations(invocations: list[AgentInvocation]) -> None:
    _check_unique("invocation", [one.invocation_id for one in invocations])
    parents = {one.invocation_id: one.parent_invocation_id for one in invocations}
    rooted: set[str | None] = set()
    for start in parents:
        path: set[str | None] = set()
        current: str | None = start
        while current in parents and current not in rooted:
            if current in path:
                raise ValueError(f"invocations are each other's parents: {current}")
            path.add(current)
            current = parents[current]
        rooted |= path
