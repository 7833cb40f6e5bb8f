"""`kill -9` of the collector at random points, then `--resume`: nothing lost, nothing twice."""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter

import pytest
from aiohttp import web

from tests.dispatch.conftest import Agent, serving

KILLS = 50
ROLLOUTS = 120


class Numbered(Agent):
    """Gives every physical run a number of its own as its reward, and fails some for good."""

    def __init__(self):
        super().__init__()
        self.numbers = itertools.count(1)
        self.given = {}

    async def answer(self, request, row):
        await asyncio.sleep(random.uniform(0.0, 0.12))
        if row["n"] % 10 == 7:
            return web.Response(status=500, text="no")
        number = next(self.numbers)
        self.given[number] = (row["_ng_task_index"], row["_ng_rollout_index"])
        # Padding makes an append long enough to be cut by a kill now and then.
        return web.json_response({"reward": float(number), "pad": "x" * random.randint(0, 200_000)})


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_kill_and_resume(tmp_path):
    random.seed(5)
    killed = rounds = 0
    async with serving(Numbered()) as agent:
        while killed < KILLS:
            rounds += 1
            directory = tmp_path / str(rounds)
            directory.mkdir()
            killed += await one_run(agent, directory, KILLS - killed)
    assert killed == KILLS


async def one_run(agent, directory, kills):
    """Kill and resume one run until it ends by itself; give how often it was killed."""
    source, output = directory / "tasks.jsonl", directory / "out.jsonl"
    source.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(ROLLOUTS // 2)))
    arguments = ["--input", source, "--output", output, "--agent", f"a={agent.url}"]
    arguments += ["--repeats", "2", "--concurrency", "6", "--retries", "1", "--json"]
    arguments += ["--captures", directory / "captures"]
    killed = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rollfold.cli", "collect", *map(str, arguments), "--resume",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        if killed < kills:
            try:
                await asyncio.wait_for(process.wait(), random.uniform(0.2, 1.0))
            except TimeoutError:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
                await process.communicate()
                continue
        stdout, stderr = await process.communicate()
        break
    assert process.returncode == 1, stderr  # the failures that stay
    summary = json.loads(stdout)
    done, failed = records(output), records(directory / "out_failures.jsonl")

    where = [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in done]
    assert len(set(where)) == len(where), "a rollout has two results"
    open_ = {(r["_ng_task_index"], r["_ng_rollout_index"]) for r in failed} - set(where)
    wanted = {(task, rollout) for task in range(ROLLOUTS // 2) for rollout in range(2)}
    assert set(where) | open_ == wanted
    assert {task for task, _ in open_} == {n for n in range(ROLLOUTS // 2) if n % 10 == 7}
    assert (summary["rollouts"], summary["failed"]) == (len(where), len(open_))

    rewards = Counter(r["reward"] for r in done)
    assert max(rewards.values()) == 1
    for record in done:
        there = (record["_ng_task_index"], record["_ng_rollout_index"])
        assert agent.given[record["reward"]] == there
    attempts = Counter(
        (r["_ng_task_index"], r["_ng_rollout_index"], r.get("_ng_attempt_index", 0))
        for r in [*done, *failed]
    )
    assert max(attempts.values()) == 1, "an attempt has two outcomes"
    classes = Counter(
        (r["_ng_task_index"], r["_ng_rollout_index"]) for r in failed if "_ng_failure_class" in r
    )
    assert {classes[where] for where in open_} == {2}
    return killed


@pytest.mark.parametrize("cut", [1, 37, 5000])
async def test_every_file_may_be_torn_at_once(tmp_path, cut):
    async with serving(Numbered()) as agent:
        source, output = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
        source.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(6)))

        async def collect():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rollfold.cli", "collect", "--resume", "--json",
                "--input", str(source), "--output", str(output), "--agent", f"a={agent.url}",
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            await process.communicate()
            return process.returncode

        assert await collect() == 0
        for name in ("out.jsonl", "out_dispatched.jsonl"):
            path = tmp_path / name
            data = path.read_bytes()
            last = data.rstrip(b"\n").rfind(b"\n") + 1
            path.write_bytes(data[: min(last + cut, len(data) - 2)])
        assert await collect() == 0
        assert sorted(r["_ng_task_index"] for r in records(output)) == list(range(6))
