"""Thousands of rows: they really run at once, and memory stays steady."""

import asyncio
import multiprocessing
import tracemalloc

import pytest

from rollfold.client import AgentClient, allow_connections
from rollfold.dispatch import run_examples

from .conftest import Agent, rows, serving


def serve(pipe):
    async def main():
        async with serving(Agent()) as agent:
            pipe.send(agent.url)
            while await asyncio.to_thread(pipe.recv) is not None:
                pipe.send(agent.peak)

    allow_connections(4_000)
    asyncio.run(main())


@pytest.fixture
async def server():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    await asyncio.to_thread(process.start)
    try:
        yield await asyncio.to_thread(ours.recv), ours
    finally:
        ours.send(None)
        await asyncio.to_thread(process.join)


async def run(url, count, concurrency, sleep):
    """Run rows drawn one by one; give the memory held in the middle and at the end."""
    held = []
    async with AgentClient({"a": url}) as client:
        source = (dict(row, sleep=sleep) for row in rows(count))
        done = 0
        async for _, result in run_examples(source, client=client, concurrency=concurrency):
            assert result["reward"] == 1.0
            done += 1
            if done in (count // 2, count):
                held.append(tracemalloc.get_traced_memory()[0])
    assert done == count
    return held


async def test_two_thousand_really_run_at_once(server):
    url, pipe = server
    async with AgentClient({"a": url}) as client:
        # All of them must be there before one may leave.
        given = rows(2_000, do="together", of=2_000)
        done = [await task for task in run_examples(given, client=client, concurrency=2_000)]
    assert len(done) == 2_000
    pipe.send(1)
    assert await asyncio.to_thread(pipe.recv) == 2_000


@pytest.mark.soak
async def test_ten_thousand_at_two_thousand_hold_memory_steady(server):
    url, _ = server
    await run(url, 2_000, 500, 0.01)
    tracemalloc.start()
    try:
        middle, end = await run(url, 10_000, 2_000, 0.2)
    finally:
        tracemalloc.stop()
    assert end < middle


async def test_memory_does_not_grow_with_the_rows(server):
    url, _ = server
    await run(url, 200, 50, 0)
    tracemalloc.start()
    try:
        middle, end = await run(url, 2_000, 50, 0)
    finally:
        tracemalloc.stop()
    assert end - middle < 500_000  # the ids of 1,000 rows, not their results
