"""The loop that a trainer's actor runs every step, written as such actors write it."""

import asyncio
import multiprocessing
import pickle
import time
import tracemalloc
from types import SimpleNamespace

import pytest
from aiohttp import web

from rollfold.capture import CaptureStore
from rollfold.dispatch import run_examples, stamp_rollout_ids

from .conftest import Agent, rows, serving

TOKENS = 1_000


class TokenAgent(Agent):
    """Returns token arrays as a policy's agent does, and leaves a capture."""

    def __init__(self, captures):
        super().__init__()
        self.store = CaptureStore(captures, durability="none")
        self.gym = {}

    async def answer(self, request, row):
        await asyncio.sleep(row.get("sleep", 0))
        rollout = row.get("_ng_rollout_id") or f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        response = {
            "id": f"resp-{rollout}",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "42"}],
                    "prompt_token_ids": list(range(TOKENS)),
                    "generation_token_ids": list(range(TOKENS)),
                    "generation_log_probs": [-0.5] * TOKENS,
                }
            ],
        }
        self.store.record(
            rollout,
            {
                "model_call_id": f"call-{rollout}",
                "dialect": "responses",
                "started_at": time.time(),
                "status_code": 200,
                "request": {"input": "what?"},
                "response": {**response, "usage": {"input_tokens": 3, "output_tokens": 2}},
            },
        )
        return web.json_response({"reward": float(row["_rowidx"] % 2), "response": response})


@pytest.fixture
async def gym(tmp_path):
    async with serving(TokenAgent(tmp_path / "captures")) as agent:
        here = {"host": "127.0.0.1", "port": agent.port}
        agent.gym = {
            "a": {"responses_api_agents": {"t": here}},
            "observability_enabled": True,
            "model_call_capture_dir": str(tmp_path / "captures"),
        }
        agent.head = SimpleNamespace(**here)
        yield agent


async def one_step(examples, head_server_config, **options):
    """Run a batch; split each result into what stays here and what goes to the learner."""
    batch = [None] * len(examples)
    for task in run_examples(examples=examples, head_server_config=head_server_config, **options):
        row, result = await task
        tokens = []
        for item in result["response"]["output"]:
            if "generation_token_ids" not in item:
                continue
            tokens.append(
                (
                    item.pop("prompt_token_ids"),
                    item.pop("generation_token_ids"),
                    item.pop("generation_log_probs"),
                )
            )
        batch[row["_rowidx"]] = {"full_result": result, "tokens": tokens}
    return batch


def learner(pipe):
    """Another process: gets what the actor sends."""
    while (batch := pipe.recv()) is not None:
        pipe.send([one["full_result"]["reward"] for one in batch])


@pytest.fixture
async def other_process():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=learner, args=(theirs,))
    await asyncio.to_thread(process.start)
    yield ours
    ours.send(None)
    await asyncio.to_thread(process.join)


@pytest.mark.parametrize("enrich", [False, True])
async def test_the_loop_of_a_trainers_actor(gym, other_process, enrich):
    options = {"enrich_results": True} if enrich else {}
    for step in range(2):
        examples = stamp_rollout_ids(rows(16), f"run-{step}")
        batch = await one_step(examples, gym.head, **options)
        for number, one in enumerate(batch):
            result = one["full_result"]
            assert result["reward"] == number % 2
            assert [len(part) for part in one["tokens"][0]] == [TOKENS] * 3
            assert "prompt_token_ids" not in result["response"]["output"][0]
            if enrich:
                capture = result["ng_model_call_capture"]
                assert capture["rollout_id"] == f"run-{step}-{number}"
                assert capture["metrics"]["num_calls"] == 1
                assert "gaps" not in capture
            else:
                assert set(result) == {"reward", "response"}
        assert pickle.loads(pickle.dumps(batch)) == batch
        await asyncio.to_thread(other_process.send, batch)
        rewards = await asyncio.to_thread(other_process.recv)
        assert rewards == [float(number % 2) for number in range(16)]


async def test_an_id_dispatched_before_leaves_its_old_calls_out(gym):
    examples = rows(4)
    given = {"enrich_results": True, "clock_skew_s": 0.0, "observability_enabled": True}
    first = await one_step(examples, gym.head, **given)
    again = await one_step(examples, gym.head, **given)
    assert all(one["full_result"]["ng_model_call_capture"]["calls"] for one in first)
    for one in again:
        gaps = one["full_result"]["ng_model_call_capture"]["gaps"]
        assert any(gap["code"] == "model_call_capture_stale_records" for gap in gaps)


async def test_an_error_in_enriching_never_loses_the_result(gym, caplog, monkeypatch):
    async def broken(*_args, **_kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr("rollfold.enrich.enrich_run_result_async", broken)
    run = run_examples(rows(3), gym.head, enrich_results=True)
    results = [result async for _, result in run]
    assert all(set(result) == {"reward", "response"} for result in results)
    assert run.enrich_errors == 3
    warnings = [r for r in caplog.records if r.name == "rollfold.dispatch"]
    assert len([r for r in warnings if r.levelname == "WARNING"]) == 1


async def test_what_did_not_finish_keeps_its_calls(gym):
    examples = rows(3)
    examples[1]["sleep"] = 30
    examples[2]["sleep"] = 30
    for number in (1, 2):
        gym.store.record(
            f"{number}-0",
            {"model_call_id": f"c{number}", "dialect": "chat", "request": {}, "response": {}},
        )
    run = run_examples(
        examples, gym.head, enrich_results=True, dispatch_budget_s=0.8, drain_margin_s=0.0,
        on_failure="record", concurrency=2, clock_skew_s=1e9,
    )  # fmt: skip
    results = {row["_rowidx"]: result async for row, result in run}
    assert results[0]["reward"] == 0.0
    for number in (1, 2):
        assert results[number]["_ng_omitted_rollout"] == "interrupted"
        capture = results[number]["ng_model_call_capture"]
        assert [call["model_call_id"] for call in capture["calls"]] == [f"c{number}"]
        assert {"code": "rollout_interrupted"} in capture["gaps"]
        assert "reward" not in results[number]


async def test_many_steps_in_one_process_hold_nothing(gym):
    async def step(number):
        batch = await one_step(stamp_rollout_ids(rows(10), f"hold-{number}"), gym.head)
        gym.seen.clear()
        return len(batch)

    await step(0)
    tracemalloc.start()
    try:
        await step(1)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2, 6):
            await step(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 300_000  # a batch of results is over 600 KB


def test_a_ray_actor_around_the_loop(tmp_path):
    ray = pytest.importorskip("ray")

    @ray.remote
    class Actor:
        async def step(self, count, captures):
            async with serving(TokenAgent(captures)) as agent:
                agent.gym = {
                    "a": {"responses_api_agents": {"t": {"host": "127.0.0.1", "port": agent.port}}}
                }
                head = SimpleNamespace(host="127.0.0.1", port=agent.port)
                return await one_step(rows(count), head)

    ray.init(num_cpus=1, include_dashboard=False)
    try:
        batch = ray.get(Actor.remote().step.remote(4, str(tmp_path)))
    finally:
        ray.shutdown()
    assert [one["full_result"]["reward"] for one in batch] == [0.0, 1.0, 0.0, 1.0]
