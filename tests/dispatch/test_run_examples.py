"""`run_examples` against real servers: order, laziness, bounds, leaving early, failures."""

import asyncio
import gc
import logging
import pickle
import time
from types import SimpleNamespace

import pytest

from rollfold.client import AgentClient
from rollfold.dispatch import RolloutFailedError, RowsError, run_examples, stamp_rollout_ids
from rollfold.errors import RollfoldError, RolloutIdError
from tests.dispatch.conftest import Agent, collect, rows, serving

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


async def test_pairs_come_as_they_complete_with_the_callers_own_row(agent, client):
    given = rows(6)
    for number, row in enumerate(given):
        row["sleep"] = (5 - number) * 0.05
    pairs = await collect(run_examples(given, client=client))
    assert [row["_rowidx"] for row, _ in pairs] == [5, 4, 3, 2, 1, 0]
    for row, result in pairs:
        assert row is given[row["_rowidx"]]
        assert result == {"reward": 1.0, "echo": row["_rowidx"]}
    assert len(agent.seen) == 6
    assert agent.seen[0] in given


async def test_async_iteration(client):
    async with run_examples(rows(3), client=client) as run:
        assert sorted([row["_rowidx"] async for row, _ in run]) == [0, 1, 2]
        assert [pair async for pair in run] == []


@pytest.mark.parametrize("wrap", [list, iter], ids=["list", "generator"])
async def test_awaitables_may_be_gathered_or_made_tasks(client, wrap):
    run = run_examples(wrap(rows(5)), client=client)
    taken = list(run)
    assert len(taken) == 5
    first = asyncio.create_task(taken[0])
    pairs = await asyncio.gather(*taken[1:], first)
    assert sorted(row["_rowidx"] for row, _ in pairs) == list(range(5))
    with pytest.raises(RuntimeError, match="awaited already"):
        await taken[0]


async def test_a_timed_out_wait_loses_nothing(client):
    run = run_examples(rows(2, sleep=0.3), client=client)
    got = 0
    for task in run:
        try:
            await asyncio.wait_for(task, 0.1)
            got += 1
        except TimeoutError:
            continue
    assert got == 2


async def test_a_generator_is_drawn_lazily_and_bounded(agent, client):
    drawn = 0

    def source():
        nonlocal drawn
        for row in rows(1_000):
            drawn += 1
            yield row

    run = run_examples(source(), client=client, concurrency=10)
    for _ in range(3):
        await anext(run)
    await asyncio.sleep(0.3)
    assert agent.peak <= 10
    assert drawn <= 3 + 2 * 10 + 64 + 1
    await run.aclose()
    assert drawn <= 3 + 2 * 10 + 64 + 1


async def test_a_generator_that_raises_is_heard_after_its_rows(client):
    def source():
        yield from rows(3)
        raise KeyError("no more")

    got = []
    with pytest.raises(KeyError, match="no more"):
        for task in run_examples(source(), client=client):
            got.append(await task)  # noqa: PERF401 (what came before the error counts)
    assert len(got) == 3
    run = run_examples(source(), client=client)
    got = []
    with pytest.raises(KeyError, match="no more"):
        async for pair in run:
            got.append(pair)
    assert len(got) == 3


async def test_concurrency_and_a_shared_semaphore(agent, client):
    await collect(run_examples(rows(30, sleep=0.01), client=client, concurrency=4))
    assert agent.peak == 4
    agent.peak = 0
    semaphore = asyncio.Semaphore(3)
    given = [{**row, "_ng_rollout_index": n} for n in range(2) for row in rows(10, sleep=0.02)]
    halves = [run_examples(given[i::2], semaphore=semaphore, client=client) for i in (0, 1)]
    done = await asyncio.gather(*map(collect, halves))
    assert sum(map(len, done)) == 20
    assert agent.peak == 3
    assert semaphore._value == 3


async def test_a_list_has_no_hidden_cap(agent, client):
    await collect(run_examples(rows(300, sleep=0.5), client=client))
    assert agent.peak == 300


@pytest.mark.parametrize("way", ["break", "aclose", "cancel", "error", "drop"])
async def test_leaving_early_cancels_what_is_left(agent, client, way):
    semaphore = asyncio.Semaphore(20)
    given = [{**row, "sleep": 0 if n == 0 else 30} for n, row in enumerate(rows(40))]

    async def consume():
        for task in run_examples(given, semaphore=semaphore, client=client):
            await task
            if way == "break":
                break
            if way == "error":
                raise ZeroDivisionError

    if way == "aclose":
        run = run_examples(given, semaphore=semaphore, client=client)
        await next(run)
        await run.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(run)
        assert list(run) == []
    elif way == "drop":
        run = run_examples(given, semaphore=semaphore, client=client)
        await next(run)
        del run
    else:
        consumer = asyncio.create_task(consume())
        await asyncio.sleep(0.3)
        if way == "cancel":
            consumer.cancel()
        await asyncio.wait([consumer])
        assert consumer.cancelled() == (way == "cancel")
        if way == "error":
            assert isinstance(consumer.exception(), ZeroDivisionError)
        del consumer
    await asyncio.sleep(0.5)
    gc.collect()
    assert agent.running == 0
    assert len(agent.seen) <= 21
    assert semaphore._value == 20


async def test_a_kept_error_does_not_keep_the_run_alive(agent, client):
    given = [{**row, "sleep": n and 30, "do": "body", "text": ""} for n, row in enumerate(rows(5))]
    kept = []
    for task in run_examples(given, client=client):
        try:
            await task
        except RolloutFailedError as error:
            kept.append(error)
        break
    await asyncio.sleep(0.3)
    assert agent.running == 0
    assert len(kept) == 1


def test_an_event_loop_that_ends_leaves_nothing_behind():
    async def main():
        async with serving(Agent()) as agent:
            head = SimpleNamespace(host="127.0.0.1", port=agent.port)
            agent.gym = {
                "a": {"responses_api_agents": {"t": {"host": head.host, "port": head.port}}}
            }
            run = run_examples(rows(10, sleep=20), head)
            list(run)
            await asyncio.sleep(0.2)
            assert agent.running == 10

    asyncio.run(main())
    gc.collect()


def test_a_run_made_before_the_loop_starts_with_it():
    async def main(run, agent):
        async with serving(agent):
            client.servers["a"] = agent.url
            try:
                return await collect(run)
            finally:
                await client.aclose()

    client = AgentClient({"a": "http://127.0.0.1:1"})
    assert len(asyncio.run(main(run_examples(rows(3), client=client), Agent()))) == 3


async def test_a_list_is_checked_as_a_whole_before_anything_is_sent(agent, client, tmp_path):
    bad = rows(6)
    del bad[0]["agent_ref"]
    bad[1]["_ng_rollout_id"] = "a/b"
    bad[2]["_ng_rollout_id"] = bad[3]["_ng_rollout_id"] = "same"
    bad[4]["agent_ref"] = {"name": "nobody"}
    bad[5] = "text"
    with pytest.raises(RowsError) as caught:
        run_examples(bad, client=client, enrich_results=True)
    assert [problem[:6] for problem in caught.value.problems] == [
        "row 0:",
        "row 1:",
        "row 3:",
        "row 4:",
        "row 5:",
        "enrich",
    ]
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    await asyncio.sleep(0.05)
    assert agent.seen == []


async def test_a_generators_bad_rows_are_outcomes_of_their_own(client):
    given = rows(5)
    given[1]["_ng_rollout_id"] = "a/b"
    given[2]["_ng_task_index"] = 0
    given[3] = "text"
    pairs = await collect(run_examples(iter(given), client=client, on_failure="record"))
    failed = {id(row): result for row, result in pairs if "_ng_failure_class" in result}
    assert set(failed) == {id(given[1]), id(given[2]), id(given[3])}
    assert "a/b" in failed[id(given[1])]["_ng_failure_message"]
    assert len(pairs) == 5


def test_arguments_that_do_not_fit():
    head = {"host": "h", "port": 1}
    with pytest.raises(ValueError, match="client or a head_server_config"):
        run_examples([])
    for wrong in (
        {"delete_model_call_capture": True, "include_model_call_payloads": False},
        {"run_timeout_s": 0},
        {"run_timeout_s": float("inf")},
        {"run_timeout_s": None},
        {"dispatch_budget_s": -1},
        {"clock_skew_s": float("nan")},
        {"concurrency": 0},
        {"on_failure": "ignore"},
    ):
        with pytest.raises(ValueError):
            run_examples([], head, **wrong)
    with pytest.raises(ValueError, match="not an http URL"):
        AgentClient({"a": "localhost:80"})


FAILURES = [
    ({"do": "status", "status": 500}, "agent_run_error", 500),
    ({"do": "status", "status": 422}, "agent_run_error", 422),
    ({"do": "status", "status": 404}, "agent_run_error", 404),
    ({"do": "status", "status": 307}, "agent_run_error", 307),
    ({"do": "status", "status": 429}, "agent_request_failed", 429),
    ({"do": "status", "status": 502}, "agent_request_failed", 502),
    ({"do": "status", "status": 503}, "agent_request_failed", 503),
    ({"do": "status", "status": 504}, "agent_request_failed", 504),
    ({"do": "body", "text": ""}, "agent_run_error", 200),
    ({"do": "body", "text": " \n"}, "agent_run_error", 200),
    ({"do": "body", "text": "{"}, "agent_run_error", 200),
    ({"do": "body", "text": "[1]"}, "agent_run_error", 200),
    ({"do": "body", "text": '{"reward": NaN}'}, "agent_run_error", 200),
    ({"do": "huge"}, "agent_run_error", 200),
    ({"do": "huge", "announced": True}, "agent_run_error", 200),
    ({"do": "drop"}, "agent_request_failed", None),
    ({"do": "half"}, "agent_request_failed", 200),
    ({"sleep": 60}, "agent_request_failed", None),
]


async def test_every_failure_has_its_class_and_costs_itself_alone(agent, client):
    given = rows(len(FAILURES) + 1)
    for row, (how, _, _) in zip(given, FAILURES, strict=False):
        row.update(how)
    begun = time.monotonic()
    run = run_examples(
        given, client=client, on_failure="record", run_timeout_s=3.0, max_body_bytes=4 << 20
    )
    results = {row["_rowidx"]: result for row, result in await collect(run)}
    assert time.monotonic() - begun < 20
    assert results.pop(len(FAILURES))["reward"] == 1.0
    assert len(agent.seen) == len(given)
    for number, (how, kind, status) in enumerate(FAILURES):
        record = results[number]
        assert record["_ng_failure_class"] == kind, how
        assert record["_ng_failure_http_status"] == status, how
        assert record["_ng_failure_type"], how
        assert record["_ng_failure_message"], how
        assert "reward" not in record
        assert len(record["_ng_failure_response_body"] or "") <= 2000
        assert (record["_ng_task_index"], record["agent_ref"]) == (number, {"name": "a"})
        assert pickle.loads(pickle.dumps(record)) == record
    assert len(results[0]["_ng_failure_response_body"]) == 2000


async def test_raise_names_the_row_can_be_pickled_and_the_others_arrive(agent, client):
    given = rows(6)
    given[1].update(do="status", status=500, text="x" * 5000)
    good, errors = [], []
    for task in run_examples(given, client=client):
        try:
            row, _ = await task
            good.append(row["_rowidx"])
        except RolloutFailedError as error:
            errors.append(error)
    assert sorted(good) == [0, 2, 3, 4, 5]
    [error] = errors
    assert error.row is given[1]
    assert "1-0" in str(error)
    assert "500" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, RollfoldError)
    assert (again.row, again.record, str(again)) == (error.row, error.record, str(error))
    assert "reward" not in again.record


async def test_the_budget_ends_with_rows_in_every_state(agent, client):
    given = rows(12)
    for row in given[:4]:
        row["sleep"] = 0.2 if row["_rowidx"] < 2 else 30
    for row in given[4:]:
        row["sleep"] = 30
    semaphore = asyncio.Semaphore(4)
    run = run_examples(
        given, semaphore=semaphore, client=client, dispatch_budget_s=1.0, drain_margin_s=0.0
    )
    begun = time.monotonic()
    results = {row["_rowidx"]: result for row, result in await collect(run)}
    assert time.monotonic() - begun < 3
    assert len(results) == 12
    assert [results[n]["reward"] for n in (0, 1)] == [1.0, 1.0]
    interrupted = [n for n, r in results.items() if r.get("_ng_omitted_rollout") == "interrupted"]
    never = [n for n, r in results.items() if r.get("_ng_omitted_rollout") == "never_started"]
    assert (sorted(interrupted), sorted(never)) == ([2, 3, 4, 5], list(range(6, 12)))
    assert results[6] == {
        "_ng_task_index": 6,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "a"},
        "_ng_omitted_rollout": "never_started",
    }
    await asyncio.sleep(0.1)
    assert agent.running == 0
    assert len(agent.seen) == 6
    assert semaphore._value == 4


async def test_the_drain_margin_is_learned(agent, client):
    run = run_examples(
        iter(rows(500, sleep=0.4)), client=client, concurrency=2, dispatch_budget_s=1.5
    )
    results = [result for _, result in await collect(run)]
    assert len(results) == 500
    assert sum("reward" in r for r in results) >= 2
    assert sum(r.get("_ng_omitted_rollout") == "interrupted" for r in results) == 0
    assert len(agent.seen) <= 6


async def test_a_budget_of_nothing_starts_nothing(agent, client):
    for source in (rows(5), iter(rows(5))):
        run = run_examples(source, client=client, dispatch_budget_s=0)
        results = [result["_ng_omitted_rollout"] for _, result in await collect(run)]
        assert results == ["never_started"] * 5
    assert agent.seen == []


async def test_no_rows(client):
    assert await collect(run_examples([], client=client)) == []
    assert [pair async for pair in run_examples(iter(()), client=client)] == []


def test_stamped_ids_stay_unique_over_steps():
    first, second = (stamp_rollout_ids([{}, {}], f"run-{step}") for step in (1, 2))
    assert [row["_ng_rollout_id"] for row in first + second] == [
        "run-1-0",
        "run-1-1",
        "run-2-0",
        "run-2-1",
    ]
    with pytest.raises(RolloutIdError):
        stamp_rollout_ids([{}], "a b")


async def test_an_object_that_is_no_json_is_its_rows_failure(client, caplog):
    given = rows(2)
    given[0]["thing"] = object()
    with caplog.at_level(logging.DEBUG):
        pairs = await collect(run_examples(given, client=client, on_failure="record"))
    kinds = {row["_rowidx"]: result.get("_ng_failure_type") for row, result in pairs}
    assert kinds == {0: "TypeError", 1: None}
