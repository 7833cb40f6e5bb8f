"""Seeded generators of capture directories with the sizes and the habits of real rollouts.

Every generator writes one rollout's capture file the way a gym's recorder writes it (compact
JSON, the fields in the order of the contract's section 3) and returns it with the row and the
result that go with it. The same seed gives the same bytes.

    python benches/shapes.py DIRECTORY            # writes every shape and prints its size
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import shapes_messages
import shapes_openai
from invented import EPOCH, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}


@dataclass(frozen=True)
class Rollout:
    """One generated rollout: where its capture lies, and what goes into the enrichment."""

    shape: str
    capture_dir: Path
    rollout_id: str
    calls: int
    row: dict[str, Any]
    result: dict[str, Any]

    @property
    def capture_file(self) -> Path:
        """The rollout's capture file."""
        return self.capture_dir / f"{self.rollout_id}.capture.jsonl"

    @property
    def capture_bytes(self) -> int:
        """The size of the capture file in bytes."""
        return self.capture_file.stat().st_size

    def fresh_result(self) -> dict[str, Any]:
        """Return a copy of the result that shares nothing with it, as a server's body gives it."""
        return orjson.loads(self.result_json())

    def result_json(self) -> bytes:
        """Return the result as the body of the agent server's answer."""
        return orjson.dumps(self.result)


class Recorder:
    """Appends exchanges to one rollout's capture file."""

    def __init__(self, shape: str, directory: Path, writer: Writer, task: int) -> None:
        self.shape = shape
        self.directory = directory
        self.writer = writer
        self.task = task
        self.rollout_id = f"{task}-0"
        self.references: list[dict[str, Any]] = []
        self.clock = EPOCH
        directory.mkdir(parents=True, exist_ok=True)
        self.file = (directory / f"{self.rollout_id}.capture.jsonl").open("wb")

    def record(
        self,
        dialect: str,
        request: dict[str, Any],
        response: dict[str, Any],
        response_raw: str | None = None,
    ) -> None:
        """Write one exchange and keep the reference that its harness would report."""
        draw = self.writer.random
        latency = round(draw.uniform(400, 20_000), 2)
        exchange: dict[str, Any] = {
            "model_call_id": f"{draw.getrandbits(128):032x}",
            "dialect": dialect,
            "model_ref": MODEL_REF,
            "started_at": round(self.clock, 6),
            "completed_at": round(self.clock + latency / 1000, 6),
            "latency_ms": latency,
            "latency_ttft_ms": round(latency / 7, 2),
            "status_code": 200,
            "error_category": None,
            "request": request,
            "response": response,
        }
        if response_raw is not None:
            exchange["response_raw"] = response_raw
        self.clock += latency / 1000 + 0.25
        self.file.write(orjson.dumps(exchange, option=orjson.OPT_APPEND_NEWLINE))
        self.references.append(
            {
                "model_call_id": exchange["model_call_id"],
                "model_ref": MODEL_REF,
                "response_id": response["id"],
            }
        )

    def finish(self, *, invocations: int = 1, source: str = "bench_agent") -> Rollout:
        """Close the file; the calls belong to `invocations` agents, one after the other."""
        self.file.close()
        calls = len(self.references)
        each = -(-calls // invocations)
        records = [
            {
                "kind": "agent_invocation",
                "invocation_id": f"agent-{number}",
                "parent_invocation_id": "agent-0" if number else None,
                "status": "completed",
                "duration_ms": round((self.clock - EPOCH) * 1000 / invocations, 1),
                "model_calls": self.references[number * each : (number + 1) * each],
                "conversation": [],
            }
            for number in range(invocations)
        ]
        params = {
            "input": [{"role": "user", "content": self.writer.prose(400), "type": "message"}],
            "temperature": 1.0,
            "max_output_tokens": 8192,
        }
        answer = {
            "id": self.writer.key("msg_"),
            "role": "assistant",
            "type": "message",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": self.writer.prose(600), "annotations": []},
            ],
        }
        row = {
            "_ng_task_index": self.task,
            "_ng_rollout_index": 0,
            "agent_ref": {"type": "responses_api_agents", "name": source},
            "responses_create_params": params,
            "instance_id": f"{self.shape}__{self.task}",
        }
        result = {
            "responses_create_params": params,
            "response": {
                "id": self.writer.key("resp_"),
                "created_at": EPOCH,
                "model": "policy",
                "object": "response",
                "output": [answer],
                "status": "completed",
                "tools": [],
            },
            "reward": 1.0,
            "resolved": True,
            "ng_agent_observations": {"source": source, "records": records, "gaps": []},
        }
        return Rollout(self.shape, self.directory, self.rollout_id, calls, row, result)


SHAPES: dict[str, Callable[[Recorder, int], int]] = {
    "small": shapes_openai.small,
    "chat": shapes_openai.chat,
    "tokens": shapes_openai.tokens,
    "agentic": shapes_messages.agentic,
    "swe": shapes_messages.swe,
    "streamed": shapes_messages.streamed,
}
"""The six shapes of the tables."""

EXTRA: dict[str, Callable[[Recorder, int], int]] = {
    "marked": shapes_messages.marked,
    "long_history": shapes_messages.long_history,
    "data_url": shapes_openai.data_url,
    "many_calls": shapes_openai.many_calls,
}
"""Shapes for single questions: moving marks, one long history, faults of size."""


def generate(
    shape: str, directory: Path, *, seed: int = 0, task: int = 0, scale: int = 1
) -> Rollout:
    """Write one rollout of `shape` into `directory` and return it.

    `task` is the task index, so that one directory can hold many rollouts; `scale` repeats the
    conversation, each time with an agent invocation and a text of its own, so the capture's size
    grows in proportion (the shapes of `EXTRA` say in their docstring what it does to them).
    """
    recorder = Recorder(shape, directory, Writer(f"{shape}/{seed}/{task}"), task)
    invocations = (SHAPES | EXTRA)[shape](recorder, scale)
    return recorder.finish(invocations=invocations)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write every shape and print its size.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES | EXTRA))
    parser.add_argument("--scale", type=int, default=1)
    arguments = parser.parse_args()
    for shape in arguments.shape or SHAPES:
        rollout = generate(shape, arguments.directory / shape, scale=arguments.scale)
        print(f"{shape:13} {rollout.calls:6} calls {rollout.capture_bytes / 1e6:9.3f} MB")


if __name__ == "__main__":
    main()
