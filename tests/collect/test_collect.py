"""The collector against a real server: files, retries, resume, budget."""

import asyncio
import json

import pytest
from aiohttp import web

from rollfold import read_log
from rollfold.collect import CollectOptions, collect_async, latest_executed
from rollfold.collect.plan import InputError
from tests.dispatch.conftest import Agent, serving


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Run:
    def __init__(self, tmp_path, agent):
        self.agent = agent
        self.source = tmp_path / "tasks.jsonl"
        self.output = tmp_path / "out.jsonl"
        self.failures = tmp_path / "out_failures.jsonl"
        self.dispatched = tmp_path / "out_dispatched.jsonl"
        self.inputs = tmp_path / "out_materialized_inputs.jsonl"
        self.captures = tmp_path / "captures"

    def write(self, rows):
        self.source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def __call__(self, **options):
        options.setdefault("agents", {"a": self.agent.url})
        return await collect_async(CollectOptions(input=self.source, output=self.output, **options))


@pytest.fixture
async def run(tmp_path):
    async with serving(Agent()) as agent:
        yield Run(tmp_path, agent)


async def test_every_outcome_has_its_line(run):
    run.write([{"n": n, "do": "status", "status": 500} if n == 3 else {"n": n} for n in range(8)])
    summary = await run(repeats=2, concurrency=3)
    assert len(lines(run.inputs)) == 16
    assert len(lines(run.output)) == 14
    assert [line["_ng_failure_class"] for line in lines(run.failures)] == ["agent_run_error"] * 2
    head, *notes = lines(run.dispatched)
    assert head["rollouts"] == 16
    assert len(notes) == 16
    assert {(r["_ng_task_index"], r["_ng_rollout_index"]) for r in lines(run.output)} == {
        (task, rollout) for task in range(8) if task != 3 for rollout in range(2)
    }
    assert (summary.succeeded, summary.failed, summary.unfinished) == (14, 2, 0)
    counted = summary.as_dict()["agents"]["a"]
    assert counted["failures"] == {"agent_run_error": 2}
    assert counted["pass_at_k"] == {
        "1": {"value": 1.0, "tasks": 7},
        "2": {"value": 1.0, "tasks": 7},
    }
    assert run.agent.peak <= 3


async def test_a_failure_is_tried_again_as_a_new_attempt(run):
    class Flaky(Agent):
        async def answer(self, request, row):
            row["do"] = "ok" if row.get("_ng_attempt_index", 0) >= row["good_at"] else "status"
            return await super().answer(request, row)

    async with serving(Flaky()) as run.agent:
        run.write([{"good_at": n, "status": 503} for n in range(4)])
        summary = await run(retries=2)
    assert (summary.succeeded, summary.failed) == (3, 1)
    found = {r["_ng_task_index"]: r.get("_ng_attempt_index", 0) for r in lines(run.output)}
    assert found == {0: 0, 1: 1, 2: 2}
    failed = [(r["_ng_task_index"], r.get("_ng_attempt_index", 0)) for r in lines(run.failures)]
    assert sorted(failed) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    latest = latest_executed(lines(run.output) + lines(run.failures))
    assert sorted(r.get("reward", -1) for r in latest) == [-1, 1, 1, 1]


async def test_a_torn_output_runs_again_what_it_lost(run):
    """Fault 32: rows 0-0, 0-1 and half of 0-2 are there, 0-0 to 0-3 are wanted."""
    run.write([{"p": 1}])
    await run(repeats=4, concurrency=1)
    kept = run.output.read_bytes().splitlines(keepends=True)
    run.output.write_bytes(b"".join(kept[:2]) + kept[2][:20])
    notes = run.dispatched.read_bytes().splitlines(keepends=True)
    run.dispatched.write_bytes(b"".join(notes[:4]) + notes[4][:9])
    run.agent.seen.clear()
    summary = await run(repeats=4, resume=True)
    sent = sorted((r["_ng_rollout_index"], r.get("_ng_attempt_index", 0)) for r in run.agent.seen)
    assert sent == [(2, 1), (3, 0)]
    assert sorted(r["_ng_rollout_index"] for r in lines(run.output)) == [0, 1, 2, 3]
    assert [r["_ng_omitted_rollout"] for r in lines(run.failures)] == ["interrupted"]
    torn = run.output.with_name("out.jsonl.torn")
    assert torn.read_bytes() == kept[2][:20] + b"\n"
    assert any(str(run.output) in note and "torn" in note for note in summary.notes)
    assert summary.succeeded == 4
    again = await run(repeats=4, resume=True)
    assert again.succeeded == 4
    assert len(run.agent.seen) == 2


async def test_a_whole_last_line_without_its_newline_is_kept(run):
    run.write([{"p": 1}])
    await run(repeats=2, concurrency=1)
    run.output.write_bytes(run.output.read_bytes()[:-1])
    run.agent.seen.clear()
    assert (await run(repeats=2, resume=True)).succeeded == 2
    assert run.agent.seen == []
    assert len(lines(run.output)) == 2


async def test_files_of_another_run_are_refused(run):
    run.write([{"p": 1}])
    await run()
    with pytest.raises(InputError, match="--resume"):
        await run()
    before = run.output.read_bytes()
    run.write([{"p": 2}])
    with pytest.raises(InputError, match="another run"):
        await run(resume=True)
    run.inputs.unlink()
    with pytest.raises(InputError, match="belongs to the run"):
        await run(resume=True)
    run.dispatched.unlink()
    run.write([{"p": 1, "_ng_task_index": 9}])
    run.inputs.unlink()
    with pytest.raises(InputError, match="0-0 is no rollout of these inputs"):
        await run(resume=True)
    assert run.output.read_bytes() == before


async def test_a_resume_needs_no_ledger(run):
    run.write([{"p": 1}])
    await run(repeats=4)
    kept = run.output.read_bytes().splitlines(keepends=True)
    run.output.write_bytes(kept[0] + kept[1] + kept[2][:9])
    run.dispatched.unlink()
    summary = await run(repeats=4, resume=True)
    assert summary.succeeded == 4
    assert any("missing" in note for note in summary.notes)


async def test_a_budget_writes_what_it_left(run):
    run.write([{"n": n, "sleep": 0 if n < 2 else 30} for n in range(10)])
    summary = await run(concurrency=3, budget_s=1.0, drain_margin_s=0.0)
    assert summary.succeeded == 2
    why = [r["_ng_omitted_rollout"] for r in lines(run.failures)]
    assert (why.count("interrupted"), why.count("never_started")) == (3, 5)
    assert summary.unfinished == 8
    for row in lines(run.failures):
        assert "reward" not in row

    run.agent.seen.clear()
    summary = await run(concurrency=3, budget_s=0.5, drain_margin_s=0.0, resume=True)
    attempts = {r["_ng_task_index"]: r.get("_ng_attempt_index", 0) for r in run.agent.seen}
    assert attempts == {2: 1, 3: 1, 4: 1}
    why = [r["_ng_omitted_rollout"] for r in lines(run.failures)]
    assert (why.count("interrupted"), why.count("never_started")) == (6, 5)


async def test_a_resume_keeps_to_the_retries(run):
    run.write([{"do": "status", "status": 500}])
    assert (await run(retries=1)).failed == 1
    assert len(run.agent.seen) == 2
    assert (await run(retries=1, resume=True)).failed == 1
    assert len(run.agent.seen) == 2
    assert (await run(retries=3, resume=True)).failed == 1
    assert [r.get("_ng_attempt_index", 0) for r in run.agent.seen] == [0, 1, 2, 3]
    assert len(lines(run.failures)) == 4


async def test_old_captures_of_the_attempts_go_and_no_others(run):
    run.captures.mkdir()
    for name in ("0-0", "0-0-a1", "7-0"):
        (run.captures / f"{name}.capture.jsonl").write_text("{}\n")
    run.write([{"p": 1}])
    summary = await run(captures=[run.captures])
    assert sorted(path.name for path in run.captures.glob("*.jsonl")) == [
        "0-0-a1.capture.jsonl",
        "7-0.capture.jsonl",
    ]
    assert summary.unclaimed == ["0-0-a1.capture.jsonl", "7-0.capture.jsonl"]


async def test_an_unknown_agent_is_found_before_anything_is_sent(run):
    run.write([{"agent_ref": {"name": "nobody"}}])
    with pytest.raises(InputError, match="nobody"):
        await run()
    assert run.agent.seen == []
    assert not run.output.exists()


async def test_an_output_that_cannot_be_written_ends_the_run(run, tmp_path):
    run.write([{"n": n} for n in range(50)])
    run.output = tmp_path / "none" / "out.jsonl"
    with pytest.raises(OSError, match="none"):
        await run()


async def test_packed_records_are_read_back_on_a_resume(run):
    run.write([{"n": n, "do": "pad", "size": 100} for n in range(6)])
    assert (await run(form="packed", limit=None)).succeeded == 6
    kept = run.output.read_bytes().splitlines(keepends=True)
    assert all(line.startswith(b'{"rollfold_packed":') for line in kept)
    assert sorted(record["_ng_task_index"] for record in read_log(run.output)) == list(range(6))
    run.output.write_bytes(b"".join(kept[:4]) + kept[4][:30])
    run.agent.seen.clear()
    assert (await run(form="packed", resume=True)).succeeded == 6
    assert len(run.agent.seen) == 2
    assert sorted(record["_ng_task_index"] for record in read_log(run.output)) == list(range(6))


async def test_a_server_that_comes_back_is_tried_again_later(run):
    run.write([{"n": 1}])
    port = run.agent.port
    await run.agent.runner.cleanup()
    begun = asyncio.create_task(run(retries=4))
    await asyncio.sleep(0.8)
    again = web.Application()
    again.router.add_post("/run", run.agent.run)
    runner = web.AppRunner(again)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        summary = await begun
    finally:
        await runner.cleanup()
    assert (summary.succeeded, summary.failed) == (1, 0)
    assert 1 <= len(lines(run.failures)) <= 4


async def test_a_drain_turns_a_retry_that_waits_into_a_row_that_never_started(run):
    run.write([{"do": "status", "status": 503}])

    def soon(collector):
        asyncio.get_running_loop().call_later(0.3, collector.drain)

    options = CollectOptions(
        input=run.source, output=run.output, agents={"a": run.agent.url}, retries=3
    )
    summary = await collect_async(options, started=soon)
    assert summary.unfinished == 1
    why = [
        (r.get("_ng_attempt_index", 0), r.get("_ng_omitted_rollout")) for r in lines(run.failures)
    ]
    assert why == [(0, None), (1, "never_started")]
    summary = await run(retries=1, resume=True)
    assert [r.get("_ng_attempt_index", 0) for r in run.agent.seen] == [0, 1]
    assert (summary.failed, summary.unfinished) == (1, 0)


async def test_a_result_that_says_it_is_another_is_still_its_rows(run):
    """A result's own identity keys stay; a resume knows all the same whose result it is."""
    keys = [{"_ng_task_index": 1}, {"_ng_rollout_id": "not/valid"}, {"_ng_task_index": 99}]
    run.write([*({"n": n, "do": "lie", "keys": k} for n, k in enumerate(keys)), {"n": 3}])
    summary = await run(concurrency=1)
    assert (summary.succeeded, summary.unfinished) == (4, 0)
    kept = run.output.read_bytes().splitlines(keepends=True)
    # Records land as they are finished, which need not be the rows' order.
    records = [json.loads(line) for line in kept]
    assert sorted(record["_ng_task_index"] for record in records) == [1, 1, 3, 99]
    (of_row_0,) = (
        at
        for at, record in enumerate(records)
        if record["_ng_task_index"] == 1 and record.get("_ng_rollout_id") != "not/valid"
    )
    run.agent.seen.clear()
    assert (await run(resume=True)).succeeded == 4
    assert run.agent.seen == []
    del kept[of_row_0]  # task 0's is lost; it is not taken for task 1's
    run.output.write_bytes(b"".join(kept))
    assert (await run(resume=True)).succeeded == 4
    assert [row["n"] for row in run.agent.seen] == [0]
