"""What `run_examples` costs beyond the HTTP client under it, and whether its memory is steady.

One server process answers every row after a pause, with a small result. The same rows go
to it twice in each round: by a bare aiohttp client (a task a row, a semaphore, the body
parsed), and by `run_examples` with an AgentClient. CPU time is this process's own
(user and system), per row, the median of the rounds; the rounds alternate.

    python benches/collect_dispatch.py --tasks 10000 --concurrency 2000
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from aiohttp import web

from rollfold import _core
from rollfold.client import AgentClient, allow_connections
from rollfold.dispatch import run_examples

PAUSE_S = 0.2


def serve(pipe: Connection) -> None:
    """Answer rows until the process ends."""
    peak = running = 0

    async def run(request: web.Request) -> web.Response:
        nonlocal peak, running
        row = await request.json()
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(PAUSE_S)
        running -= 1
        return web.json_response({"reward": 1.0, "n": row["n"], "peak": peak})

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/run", run)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    allow_connections(20_000)
    asyncio.run(main())


def rows(count: int) -> list[dict]:
    """Rows as a trainer has them, with a prompt of about 1 KB."""
    return [
        {
            "_ng_task_index": n,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "a"},
            "n": n,
            "responses_create_params": {"input": "x" * 1000},
        }
        for n in range(count)
    ]


async def bare(url: str, given: list[dict], concurrency: int) -> int:
    """Post every row with nothing but the HTTP client; give the server's peak."""
    semaphore = asyncio.Semaphore(concurrency)
    peak = 0
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:

        async def one(row: dict) -> dict:
            async with (
                semaphore,
                session.post(
                    f"{url}/run",
                    data=_core.dumps(row),
                    headers={"Content-Type": "application/json"},
                ) as response,
            ):
                return _core.loads(await response.read())

        for done in asyncio.as_completed([one(row) for row in given]):
            peak = max(peak, (await done)["peak"])
    return peak


async def ours(url: str, given: list[dict], concurrency: int) -> int:
    """Do the same by `run_examples`."""
    peak = 0
    async with AgentClient({"a": url}) as client:
        for task in run_examples(given, client=client, concurrency=concurrency):
            _, result = await task
            peak = max(peak, result["peak"])
    return peak


def cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    """Resident memory now, in MB."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    """Run the rounds and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    allow_connections(options.concurrency)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}"
    given = rows(options.tasks)
    spent: dict[str, list[float]] = {"bare": [], "ours": []}
    walls: dict[str, list[float]] = {"bare": [], "ours": []}
    memory: list[float] = []
    for number in range(options.rounds + 1):
        for name, way in (("bare", bare), ("ours", ours)):
            before, begun = cpu(), time.monotonic()
            peak = asyncio.run(way(url, given, options.concurrency))
            if number:  # the first round warms up
                spent[name].append((cpu() - before) / options.tasks * 1e6)
                walls[name].append(time.monotonic() - begun)
        memory.append(resident_mb())
    server.kill()
    result = {
        "tasks": options.tasks,
        "concurrency": options.concurrency,
        "peak_at_server": peak,
        "cpu_us_per_row": {name: round(statistics.median(v), 1) for name, v in spent.items()},
        "beyond_the_client_us": round(
            statistics.median(a - b for a, b in zip(spent["ours"], spent["bare"], strict=True)), 1
        ),
        "wall_s": {name: round(statistics.median(v), 2) for name, v in walls.items()},
        "resident_mb_after_each_round": [round(m, 1) for m in memory],
        "python": sys.version.split()[0],
        "aiohttp": aiohttp.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
