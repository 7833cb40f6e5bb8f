"""What a set of records adds up to, per agent."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rollfold import identity
from rollfold.collect.latest import rollout_key
from rollfold.dispatch.attempt import FAILURE_CLASS, OMITTED, agent_of
from rollfold.errors import RolloutIdError

TOKEN_FIELDS: Final = (
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
)
PERCENTILES: Final = (50, 90, 99)
UNKNOWN_AGENT: Final = "(none)"
CAPTURE_SUFFIXES: Final = (".capture.jsonl", ".capture.late.jsonl", ".capture.incomplete")


@dataclass(slots=True)
class AgentSummary:
    """One agent's rollouts.

    Rewards, calls, turns and tokens are of rollouts that have a result; latencies are
    milliseconds from dispatch to the result's last byte.
    """

    rollouts: int = 0
    rewards: list[float] = field(default_factory=list)
    tasks: dict[str, list[int]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    omitted: Counter[str] = field(default_factory=Counter)
    with_calls: int = 0
    calls: int = 0
    turns: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    tokens_known: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    gaps: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        attempts = [counts for counts in self.tasks.values() if counts[0]]
        largest = max((n for n, _ in attempts), default=0)
        return {
            "rollouts": self.rollouts,
            "failures": dict(self.failures),
            "omitted": dict(self.omitted),
            "rewards": len(self.rewards),
            "reward_mean": fmean(self.rewards) if self.rewards else None,
            "pass_at_k": {str(k): _pass_at(k, attempts) for k in sorted({1, largest}) if largest},
            "rollouts_with_calls": self.with_calls,
            "calls": self.calls,
            "turns": self.turns,
            "tokens": {
                name: {"sum": self.tokens[name], "calls": self.tokens_known[name]}
                for name in TOKEN_FIELDS
                if self.tokens_known[name]
            },
            "latency_ms": {f"p{p}": percentile(self.latencies_ms, p) for p in PERCENTILES}
            if self.latencies_ms
            else {},
            "gaps": dict(self.gaps),
        }


class Summary:
    """Adds records up as they come.

    Args:
        success_at: a reward at or over it is a success.
    """

    def __init__(self, success_at: float = 1.0) -> None:
        self.success_at = success_at
        self.agents: dict[str, AgentSummary] = {}
        self.unclaimed: list[str] = []
        self.notes: list[str] = []
        self.enrich_errors = 0
        self.captures_kept = 0
        self._open: dict[str, tuple[str, str, str]] = {}
        self._kinds: Counter[str] = Counter()
        self._reward_sum = 0.0
        self._rewards = 0

    @property
    def succeeded(self) -> int:
        """Rollouts that have a result."""
        return sum(agent.rollouts for agent in self.agents.values())

    @property
    def failed(self) -> int:
        """Rollouts whose latest attempt failed."""
        return self._kinds["failures"]

    @property
    def unfinished(self) -> int:
        """Rollouts that were interrupted or never started."""
        return self._kinds["omitted"]

    @property
    def with_calls(self) -> int:
        """Rollouts with a recorded model call."""
        return sum(agent.with_calls for agent in self.agents.values())

    @property
    def reward_mean(self) -> float | None:
        """Over all agents."""
        return self._reward_sum / self._rewards if self._rewards else None

    def add(
        self, record: Mapping[str, Any], key: str | None = None, latency_ms: float | None = None
    ) -> None:
        """Count a record: of a result, a failure or an omitted rollout; a later one of a rollout wins.

        Args:
            record: enriched or not.
            key: its rollout, where that is not what the record itself says.
            latency_ms: measured, where the record does not say it.
        """
        name = agent_of(record) or UNKNOWN_AGENT
        if key is None:
            key = _key_of(record)
        outcome = outcome_of(record)
        if outcome is not None:
            self.note_open(key, name, *outcome)
            return
        self._close(key)
        agent = self.agents.setdefault(name, AgentSummary())
        agent.rollouts += 1
        self._add_reward(agent, record)
        self._add_calls(agent, record)
        perf = record.get("ng_perf")
        if isinstance(perf, Mapping) and _is_number(perf.get("total_latency_ms")):
            latency_ms = perf["total_latency_ms"]
        if latency_ms is not None:
            agent.latencies_ms.append(latency_ms)

    def note_open(self, key: str, agent: str, kind: str, what: str) -> None:
        """Count a rollout whose record is not at hand: `failures` and its class, or `omitted`."""
        self._close(key)
        self._open[key] = (agent, kind, what)
        self._kinds[kind] += 1
        self.agents.setdefault(agent, AgentSummary())

    def _close(self, key: str) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            self._kinds[known[1]] -= 1

    def look_for_unclaimed(self, directories: Iterable[Path], claimed: set[str]) -> None:
        """List the capture files of directories that no attempt of this run claims."""
        found: set[str] = set()
        for directory in directories:
            if not directory.is_dir():
                continue
            for path in directory.iterdir():
                for suffix in CAPTURE_SUFFIXES:
                    if path.name.endswith(suffix) and path.name[: -len(suffix)] not in claimed:
                        found.add(path.name)
        self.unclaimed = sorted(found)

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values: totals, then each agent."""
        for agent in self.agents.values():
            agent.failures.clear()
            agent.omitted.clear()
        for name, kind, what in self._open.values():
            agent = self.agents[name]
            (agent.failures if kind == "failures" else agent.omitted)[what] += 1
        return {
            "rollouts": self.succeeded,
            "failed": self.failed,
            "unfinished": self.unfinished,
            "reward_mean": self.reward_mean,
            "rollouts_with_calls": self.with_calls,
            "enrich_errors": self.enrich_errors,
            "captures_kept": self.captures_kept,
            "unclaimed_captures": self.unclaimed,
            "notes": self.notes,
            "agents": {name: agent.as_dict() for name, agent in sorted(self.agents.items())},
        }

    def _add_reward(self, agent: AgentSummary, record: Mapping[str, Any]) -> None:
        reward = record.get("reward")
        if not isinstance(reward, int | float) or isinstance(reward, bool):
            return
        self._reward_sum += reward
        self._rewards += 1
        agent.rewards.append(float(reward))
        counts = agent.tasks.setdefault(str(record.get(identity.TASK_INDEX)), [0, 0])
        counts[0] += 1
        counts[1] += reward >= self.success_at

    def _add_calls(self, agent: AgentSummary, record: Mapping[str, Any]) -> None:
        capture = record.get("ng_model_call_capture")
        trajectory = record.get("ng_trajectory")
        capture = capture if isinstance(capture, Mapping) else {}
        trajectory = trajectory if isinstance(trajectory, Mapping) else {}
        metrics = capture.get("metrics")
        metrics = metrics if isinstance(metrics, Mapping) else {}
        coverage = capture.get("metrics_coverage")
        coverage = coverage if isinstance(coverage, Mapping) else {}
        calls = metrics.get("num_calls") or 0
        agent.calls += calls
        agent.with_calls += bool(calls)
        agent.turns += len(trajectory.get("turns") or ())
        for name in TOKEN_FIELDS:
            value = metrics.get(name)
            if value is not None:
                agent.tokens[name] += value
                agent.tokens_known[name] += coverage.get(name, calls)
        gaps = trajectory.get("gaps") or capture.get("gaps") or ()
        agent.gaps.update(gap.get("code", "?") for gap in gaps if isinstance(gap, Mapping))


def outcome_of(record: Mapping[str, Any]) -> tuple[str, str] | None:
    """Say why a record has no result: `failures` or `omitted`, and which; None where it has one."""
    why = record.get(OMITTED)
    if why is not None or record.get("_ng_dispatch_drained"):
        return "omitted", str(why or "never_started")
    kind = record.get(FAILURE_CLASS)
    return None if kind is None else ("failures", str(kind))


def percentile(values: list[float], percent: int) -> float:
    """Give the smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _pass_at(k: int, attempts: list[list[int]]) -> dict[str, Any]:
    """Estimate pass@k without bias: 1 - C(n-c, k) / C(n, k), over tasks with k rewards or more."""
    values = [1 - comb(n - c, k) / comb(n, k) for n, c in attempts if n >= k]
    return {"value": fmean(values) if values else None, "tasks": len(values)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key_of(record: Mapping[str, Any]) -> str:
    """Give a record's rollout; one without a valid id stands for itself."""
    try:
        return rollout_key(record) or f"record {id(record)}"
    except RolloutIdError:
        return f"record {id(record)}"
