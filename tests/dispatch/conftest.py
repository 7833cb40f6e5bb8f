"""Real agent servers on loopback, each with its own idea of how to behave."""

import asyncio
import contextlib
import gc
import json

import pytest
from aiohttp import web

from rollfold.client import AgentClient


class Agent:
    """An aiohttp server whose `/run` does what a row's `do` says."""

    def __init__(self):
        self.seen = []
        self.running = 0
        self.peak = 0
        self.cancelled = 0
        self.all_here = asyncio.Event()
        self.url = ""

    async def run(self, request):
        row = await request.json()
        self.seen.append(row)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self.answer(request, row)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def answer(self, request, row):
        await asyncio.sleep(row.get("sleep", 0))
        do = row.get("do", "ok")
        if do == "ok":
            return web.json_response({"reward": 1.0, "echo": row.get("_rowidx")})
        if do == "together":
            if self.running >= row["of"]:
                self.all_here.set()
            await asyncio.wait_for(self.all_here.wait(), 60)
            return web.json_response({"reward": 1.0})
        if do == "lie":
            return web.json_response({"reward": 1.0, **row["keys"]})
        if do == "pad":
            return web.json_response({"reward": 1.0, "pad": "x" * row["size"]})
        if do == "status":
            return web.Response(status=row["status"], text=row.get("text", "boom " * 1000))
        if do == "body":
            return web.Response(text=row["text"], content_type="application/json")
        if do == "drop":
            request.transport.abort()
            await asyncio.sleep(10)
        if do == "half":
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b'{"reward": ')
            request.transport.close()
            return response
        if do == "huge":
            response = web.StreamResponse()
            if row.get("announced"):
                response.content_length = 200 << 20
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                for _ in range(200):
                    await response.write(b"x" * (1 << 20))
            return response
        raise AssertionError(do)

    async def config(self, request):
        return web.json_response(self.gym)


@contextlib.asynccontextmanager
async def serving(agent):
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/run", agent.run)
    app.router.add_get("/global_config_dict_yaml", agent.config)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    agent.port = runner.addresses[0][1]
    agent.url = f"http://127.0.0.1:{agent.port}"
    agent.runner = runner
    try:
        yield agent
    finally:
        await runner.cleanup()


@pytest.fixture
async def agent():
    async with serving(Agent()) as server:
        yield server


@pytest.fixture
async def client(agent):
    async with AgentClient({"a": agent.url}) as made:
        yield made


def rows(count, **keys):
    return [
        {
            "_ng_task_index": n,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "a"},
            "_rowidx": n,
            **keys,
        }
        for n in range(count)
    ]


def dumps(value):
    return json.dumps(value)


async def collect(run):
    return [await task for task in run]


@pytest.fixture
def nothing_left_behind(caplog):
    """No task may end with an exception that nobody retrieved."""
    yield
    gc.collect()
    assert not [r for r in caplog.get_records("call") if r.name == "asyncio"]
