"""Rollouts of odd parts: what an agent, a server or a writer could send and should not.

Everything is drawn from one `random.Random`, so that a rollout is its seed.
"""

import json
from random import Random
from typing import Any

from tests.rollouts import MODEL_REF

ODD_VALUES = [
    *(None, True, False, 0, 1, -1, 2**64, 10**25, 10**400, -(10**400)),
    *(1.5, -0.0, 1e300, "", "x", "5", "é😀", "\u2028", "\x00"),
    *([], [1], [[]], [None], {}, {"a": 1}, {"type": "text"}),
]
CALL_IDS = ["a", "b", "c", ""]
INVOCATIONS = ["root", "sub", "other"]
TEXTS = ["one", "two", "é😀", "", "x\ny"]
ARGUMENTS = ["{}", '{"x":1}', '{"x":NaN}', "[1]", "no", '{"a":1,"a":2}', {"k": 1}, None, "null"]
BROKEN_LINES = [b"", b" \r", b"\0\0", b"{", b"null", b'{"a":NaN}', b'{"a":"\\ud800"}', b"\xff{}"]


class Odd:
    """A source of odd parts.

    Args:
        random: where everything is drawn from.
        oddness: how often a value is another than it should be.
    """

    def __init__(self, random: Random, oddness: float = 0.03) -> None:
        self.random = random
        self.oddness = oddness

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, make: Any, most: int) -> list[Any]:
        return [make() for _ in range(self.random.randrange(most + 1))]

    def bent(self, value: Any, oddness: float) -> Any:
        """Give a value with some of its parts replaced, left out, added or doubled."""
        if self.maybe(oddness):
            return self.random.choice(ODD_VALUES)
        if isinstance(value, dict):
            kept = {
                key: self.bent(inner, oddness)
                for key, inner in value.items()
                if not self.maybe(oddness)
            }
            return kept | ({"extra": self.random.choice(ODD_VALUES)} if self.maybe(oddness) else {})
        if isinstance(value, list):
            items = [self.bent(inner, oddness) for inner in value]
            return items + (items[:1] if self.maybe(oddness) else [])
        return value

    def spelled(self, value: Any) -> str:
        """Give JSON text with blanks, escapes and duplicate keys where they may be."""
        blank = self.one(" ", "\t") if self.maybe(0.05) else ""
        if isinstance(value, dict):
            members = []
            for key, inner in value.items():
                if self.maybe(0.02):
                    members.append(f"{self.spelled(key)}:{self.spelled(self.one(*ODD_VALUES))}")
                members.append(f"{blank}{self.spelled(key)}{blank}:{self.spelled(inner)}")
            return "{" + ",".join(members) + blank + "}"
        if isinstance(value, list):
            return "[" + blank + ",".join(self.spelled(inner) for inner in value) + "]"
        if isinstance(value, str) and self.maybe(0.05):
            units = value.encode("utf-16-be")
            escapes = (f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
            return '"' + "".join(escapes) + '"'
        return json.dumps(value, ensure_ascii=self.maybe(0.5))

    def reference(self) -> dict[str, Any]:
        by_id = {"model_call_id": self.one("a", "b", "c", "gone")}
        by_response = {"model_ref": MODEL_REF, "response_id": self.one("r1", "r2")}
        return self.one(by_id, by_response, by_id | by_response, by_id | {"note": 1})

    def usage(self) -> dict[str, Any]:
        counts = ["input_tokens", "prompt_tokens", "output_tokens", "total_tokens"]
        counts += ["cache_read_input_tokens", "cache_creation_input_tokens", "cached_tokens"]
        known = {name: self.one(0, 5, 40, 900, None) for name in counts if self.maybe(0.5)}
        return known | {"prompt_tokens_details": self.one(None, {"cached_tokens": 3})}

    def block(self) -> dict[str, Any]:
        image = {"type": "image", "source": {"type": "url", "url": "u"}}
        text = {"type": "text", "text": self.one(*TEXTS)}
        return self.one(
            text,
            image,
            {
                "type": "tool_use",
                "id": "t1",
                "name": "f",
                "input": self.one({}, None, {"x": 2**64}),
            },
            {"type": "tool_result", "tool_use_id": "t1", "content": self.one(None, "o", [text])},
            {"type": "tool_result", "tool_use_id": "t1", "content": [image], "is_error": True},
            {"type": "thinking", "thinking": self.one(*TEXTS), "signature": self.one("s", None)},
            {"type": "redacted_thinking", "data": "d"},
            self.one({"type": "server_tool_use", "id": "s", "name": "w", "input": {}}, text, text),
        )

    def item(self) -> dict[str, Any]:
        return self.one(
            {"role": "user", "content": self.one(*TEXTS)},
            {"type": None, "role": "user", "content": "q"},
            {"type": "function_call", "call_id": self.one("t1", None), "id": "i", "name": "f"}
            | {"arguments": self.one(*ARGUMENTS)},
            {"type": "function_call_output", "call_id": "t1", "output": "o"},
            {"type": "reasoning", "id": "r", "summary": [{"text": self.one(*TEXTS)}]},
            {"type": "web_search_call", "id": "w"},
        )

    def chat_message(self) -> dict[str, Any]:
        function = {"name": "f", "arguments": self.one(*ARGUMENTS)}
        optional = {
            "reasoning_content": self.one(*TEXTS),
            "reasoning": self.one("r", None, ["r"]),
            "tool_calls": [{"id": self.one("t1", None), "type": "function", "function": function}],
            "function_call": function,
            "refusal": "no",
            "audio": {"id": "x", "data": "d"},
        }
        kept = {key: value for key, value in optional.items() if self.maybe(0.25)}
        return {"role": "assistant", "content": self.one(*TEXTS, None)} | kept

    def exchange(self) -> Any:
        dialect = self.one("responses", "chat", "messages")
        request: dict[str, Any] = {"model": self.one("m", None, "")}
        response: dict[str, Any] = {"id": self.one("r1", "r2", None), "usage": self.usage()}
        if dialect == "responses":
            request |= {"input": self.one(self.some(self.item, 3), "q", None)}
            request |= {"instructions": self.one("S", "", None)}
            response |= {"output": self.some(self.item, 4), "status": "completed"}
        elif dialect == "chat":
            request |= {"messages": self.some(self.chat_message, 3)}
            choice = lambda: {"index": self.one(0, 1, None), "message": self.chat_message()}  # noqa: E731
            response |= {"choices": self.some(choice, 3)}
        else:
            asked = lambda: {"role": "user", "content": self.one("q", self.some(self.block, 3))}  # noqa: E731
            request |= {"messages": self.some(asked, 3), "system": self.one("S", None, [])}
            response |= {"content": self.some(self.block, 4), "stop_reason": "end_turn"}
        exchange = {
            "model_call_id": self.one(*CALL_IDS, None),
            "dialect": self.one(dialect, dialect, dialect, None, "other"),
            "model_ref": self.one(MODEL_REF, None),
            "started_at": self.one(10.0, 20, 1e18, -5, None),
            "completed_at": self.one(11.0, None, -1.5),
            "latency_ms": self.one(1.25, 3, None, -1, 1e308),
            "latency_ttft_ms": self.one(0.5, None, -2),
            "status_code": self.one(200, 500, None),
            "client_session_id": self.one(None, *INVOCATIONS),
            "request": request,
            "response": self.one(response, response, response, None, {}, "text"),
            "response_raw": self.one(None, "raw\x00é", 5),
        }
        return self.bent(exchange, self.oddness / 3)

    def line(self) -> bytes:
        if self.maybe(0.1):
            return self.random.choice(BROKEN_LINES)
        text = self.spelled(self.exchange()).encode()
        cut = text[: self.random.randrange(len(text) + 1)]
        doubled = text + self.spelled(self.exchange()).encode()
        return self.one(text, text, text, text, text, doubled, self.one(cut, text + b"x", text))

    def capture(self) -> bytes:
        lines = self.some(self.line, 6)
        return b"\n".join(lines + (lines[:1] if self.maybe(0.2) else [])) + self.one(b"\n", b"")

    def invocation(self, invocation_id: str) -> dict[str, Any]:
        return {
            "kind": "agent_invocation",
            "invocation_id": invocation_id,
            "parent_invocation_id": self.one(None, None, "gone", "", *INVOCATIONS),
            "status": self.one("completed", None),
            "duration_ms": self.one(1, 2.5, None),
            "model_calls": self.some(self.reference, 3),
            "conversation": self.some(self.item, 3),
        }

    def tool_call(self) -> dict[str, Any]:
        place = {"invocation_id": self.one(*INVOCATIONS), "tool_call_id": self.one("t1", "t2")}
        times = {"started_at": self.one(None, 1.0), "completed_at": self.one(None, 2)}
        return {"kind": "tool_call", "status": self.one("completed", "unknown")} | place | times

    def observations(self) -> Any:
        records = [self.invocation(one) for one in INVOCATIONS if self.maybe(0.6)]
        records += self.some(self.tool_call, 3)
        compaction = {"kind": "context_compaction", "invocation_id": "root", "outcome": "completed"}
        compaction |= {"model_calls": self.some(self.reference, 1), "tokens_before": 5}
        records += [compaction] if self.maybe(0.3) else []
        records += [{"kind": "new", "x": [1]}] if self.maybe(0.1) else []
        gaps = [{"code": self.one("x", "model_call_reference_unmatched", "y")} for _ in "12"]
        bundle = {"source": self.one("h", "claude_code"), "records": records, "gaps": gaps}
        return self.bent(bundle, self.oddness / 8)

    def trajectory(self) -> Any:
        ids = self.random.sample(["a", "b", None, None, "own"], self.random.randrange(4))
        numbers = range(1, 1 + self.random.randrange(3))
        turn = {"invocation_id": "root", "timestamp": 1.0, "step_count": 0, "question": "q"}
        own = {
            "task_id": self.one("3", "another", None),
            "invocations": [self.invocation(one) for one in INVOCATIONS if self.maybe(0.4)],
            "turns": [turn | {"turn_no": number} for number in numbers],
            "model_calls": [{"model_call_id": one, "request": {"q": 1}} for one in ids],
            "tool_calls": [self.tool_call() | {"output": "own"}],
            "gaps": [{"code": self.one("mine", "x")}],
        }
        return self.bent(own, self.oddness / 8)

    def result(self) -> dict[str, Any]:
        judge = {"invocation_id": "judge", "model_calls": self.some(self.reference, 2)}
        optional = {
            "ng_agent_observations": (0.8, self.observations()),
            "ng_verifier_invocations": (0.3, self.bent([judge], self.oddness)),
            "ng_trajectory": (0.3, self.trajectory()),
            "resolved": (0.4, self.one(True, False, 1, "true")),
            "_ng_omitted_rollout": (0.05, "interrupted"),
            "_ng_failure_class": (0.05, self.one("x", "", False)),
        }
        kept = {key: value for key, (chance, value) in optional.items() if self.maybe(chance)}
        return {"reward": 1.0, "f": 1e22, "big": 2**80} | kept
