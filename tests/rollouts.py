"""Invented rollouts for tests: exchanges, capture files, rows, results, one enrichment."""

import json

from rollfold import enrich_run_result

MODEL_REF = {"type": "responses_api_models", "name": "policy"}
ROW = {"_ng_task_index": 3, "_ng_rollout_index": 1, "agent_ref": {"name": "agent"}}
ROLLOUT_ID = "3-1"


def usage(tokens_in=10, tokens_out=2):
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }


def chat(call_id, *, request=None, response=None, answer="a", **fields):
    """A chat exchange; `started_at` follows the call id's first character."""
    started = 1_790_000_000.0 + (ord(call_id[0]) if call_id else 0)
    exchange = {
        "model_call_id": call_id,
        "dialect": "chat",
        "model_ref": MODEL_REF,
        "started_at": started,
        "completed_at": started + 0.5,
        "latency_ms": 500.0,
        "status_code": 200,
        "request": request or {"model": "m", "messages": [{"role": "user", "content": "q"}]},
        "response": response
        or {
            "id": f"chatcmpl_{call_id}",
            "model": "m-1",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": answer},
                }
            ],
            "usage": usage(),
        },
    }
    return {**exchange, **fields}


def messages(call_id, content, *, request=None, **fields):
    request = request or {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    response = {"id": f"msg_{call_id}", "role": "assistant", "content": content}
    return chat(call_id, request=request, response=response, dialect="messages", **fields)


def responses(call_id, request, output, **fields):
    body = {"id": f"resp_{call_id}", "status": "completed", "output": output}
    return chat(call_id, request=request, response=body, dialect="responses", **fields)


def line(exchange):
    return json.dumps(exchange).encode()


def capture(directory, *lines, rollout_id=ROLLOUT_ID, end=b"\n"):
    """Write a capture file of exchanges (dicts) and raw lines (bytes)."""
    data = b"\n".join(one if isinstance(one, bytes) else line(one) for one in lines) + end
    path = directory / f"{rollout_id}.capture.jsonl"
    path.write_bytes(data)
    return path


def observed(*call_ids, invocation_id="root", more=(), gaps=(), **fields):
    """Observations of one invocation that names these calls, and more records."""
    return {
        "source": "harness",
        "records": [
            {
                "kind": "agent_invocation",
                "invocation_id": invocation_id,
                "status": "completed",
                "model_calls": [{"model_call_id": call_id} for call_id in call_ids],
                **fields,
            },
            *more,
        ],
        "gaps": list(gaps),
    }


def result_of(*call_ids, **fields):
    result = {"reward": 1.0, "response": {"id": "final", "output": []}, **fields}
    if call_ids:
        result.setdefault("ng_agent_observations", observed(*call_ids))
    return result


def enrich(directory, result=None, *, row=None, **kwargs):
    result = result_of() if result is None else result
    kwargs.setdefault("observability_enabled", True)
    return enrich_run_result(dict(row or ROW), result, capture_dirs=[directory], **kwargs)


def calls_of(result):
    return result["ng_model_call_capture"]["calls"]


def ids_of(result):
    return [(call["model_call_id"], call["call_index"]) for call in calls_of(result)]


def capture_gaps(result):
    gaps = result["ng_model_call_capture"].get("gaps", [])
    return [(gap["code"], gap.get("detail")) for gap in gaps]


def codes(holder):
    return [gap["code"] for gap in holder.get("gaps", [])]


def turns_of(result):
    return result["ng_trajectory"]["turns"]
