"""What an agent reports of its own run: `ng_agent_observations` (contract, section 6)."""

import time
from typing import Any

MODEL_REF = {"type": "responses_api_models", "name": "demo_model"}

Json = dict[str, Any]


class Observer:
    """Collects the records of one rollout."""

    def __init__(self) -> None:
        self.records: list[Json] = []

    def invocation(self, name: str, **about: Any) -> "Invocation":
        """Begin an invocation: the root agent's or a subagent's."""
        record: Json = {
            "kind": "agent_invocation",
            "invocation_id": name,
            "status": "unknown",
            "model_calls": [],
            "conversation": [],
            **about,
        }
        self.records.append(record)
        return Invocation(self, record)

    def bundle(self) -> Json:
        """Give it all."""
        return {"source": "rollfold_demo", "records": self.records, "gaps": []}


class Invocation:
    """One conversation under way."""

    def __init__(self, observer: Observer, record: Json) -> None:
        self._observer = observer
        self._begun = time.time()
        self.record = record

    def called(self, response_id: str) -> None:
        """Note a model call by its response's id."""
        self.record["model_calls"].append(reference(response_id))

    def said(self, *items: Json) -> None:
        """Add Responses items to the conversation."""
        self.record["conversation"].extend(items)

    def tool(self, call_id: str, name: str, begun: float, output: str) -> None:
        """Note a tool call that the agent carried out."""
        ended = time.time()
        self.said({"type": "function_call_output", "call_id": call_id, "output": output})
        self._observer.records.append(
            {
                "kind": "tool_call",
                "invocation_id": self.record["invocation_id"],
                "tool_call_id": call_id,
                "tool_name": name,
                "started_at": begun,
                "completed_at": ended,
                "duration_ms": (ended - begun) * 1000,
                "timing_source": "executor",
                "status": "completed",
            }
        )

    def compacted(self, response_id: str, summary: str, before: str) -> None:
        """Note that the context was replaced by a summary that a model call wrote."""
        self._observer.records.append(
            {
                "kind": "context_compaction",
                "invocation_id": self.record["invocation_id"],
                "observed_at": time.time(),
                "trigger": "demo",
                "outcome": "completed",
                "summary": summary,
                "before_model_call": reference(before),
                "model_calls": [reference(response_id)],
            }
        )
        self.called(response_id)

    def done(self, status: str = "completed") -> None:
        """End the invocation."""
        self.record["status"] = status
        self.record["duration_ms"] = (time.time() - self._begun) * 1000


def reference(response_id: str) -> Json:
    """Name a model call by what the agent knows of it."""
    return {"model_ref": MODEL_REF, "response_id": response_id}
