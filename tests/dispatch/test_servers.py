"""`run_examples` with clients and servers of every shape: the gym's, a head server, dying ones."""

import asyncio
import multiprocessing
import os
from types import SimpleNamespace

import aiohttp
import pytest
import yaml

from rollfold.client import AgentClient
from rollfold.dispatch import RowsError, run_examples
from tests.dispatch.conftest import Agent, collect, rows, serving

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def dying_server(port_pipe, after):

    class Dying(Agent):
        async def answer(self, request, row):
            if len(self.seen) > after:
                os._exit(9)
            return await super().answer(request, row)

    async def main():
        async with serving(Dying()) as agent:
            port_pipe.send(agent.url)
            await asyncio.sleep(60)

    asyncio.run(main())


async def test_a_server_that_dies_half_way_gives_no_short_list():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=dying_server, args=(theirs, 5))
    process.start()
    try:
        url = await asyncio.to_thread(ours.recv)
        async with AgentClient({"a": url}) as client:
            run = run_examples(rows(8), client=client, concurrency=1, on_failure="record")
            pairs = await collect(run)
    finally:
        await asyncio.to_thread(process.join)
    assert len(pairs) == 8
    failed = [row["_rowidx"] for row, result in pairs if "_ng_failure_class" in result]
    assert sorted(failed) == [5, 6, 7]


async def test_a_client_of_the_gyms_own_shape(agent):
    class ServerClient:
        def __init__(self):
            self.global_config_dict = {
                "env": {"environment_servers": {"t": {"agent_server": {"name": "a"}}}}
            }
            self.posts = []

        async def post(self, server_name, url_path, **kwargs):
            self.posts.append(server_name)
            return await session.post(f"{agent.url}{url_path}", **kwargs)

    given = rows(3)
    given[1].update(do="huge")
    async with aiohttp.ClientSession() as session:
        server_client = ServerClient()
        run = run_examples(given, client=server_client, on_failure="record", max_body_bytes=1 << 20)
        pairs = await collect(run)
    assert server_client.posts == ["env"] * 3
    assert sorted(result.get("reward", 0) for _, result in pairs) == [0, 1.0, 1.0]


async def test_a_client_with_nothing_but_read():
    class Answer:
        status = 200

        async def read(self):
            return b'{"reward": 18446744073709551616}'

    class Minimal:
        async def post(self, server_name, url_path, json):
            return Answer()

    [(_, result)] = await collect(run_examples(rows(1), client=Minimal()))
    assert result == {"reward": 18446744073709551616}


async def test_a_head_server_names_everything(agent):

    here = {"host": "127.0.0.1", "port": agent.port}
    config = {
        "a": {"responses_api_agents": {"simple": {"host": "127.0.0.1", "port": 1}}},
        "two_a": {"responses_api_agents": {"simple": here}},
        "env": {"environment_servers": {"e": {"agent_server": {"name": "a"}, **here}}},
        "env1": {"environment_servers": {"e": {"agent_server": {"name": "two_a"}, **here}}},
        "env2": {"environment_servers": {"e": {"agent_server": {"name": "two_a"}, **here}}},
        "policy_base_url": ["x"],
    }
    agent.gym = yaml.safe_dump(config)
    given = rows(2)
    given[1]["agent_ref"] = {"name": "two_a"}
    for head in (SimpleNamespace(**here), here):
        pairs = await collect(run_examples(examples=given, head_server_config=head))
        assert [result["reward"] for _, result in pairs] == [1.0, 1.0]

    agent.seen.clear()
    given[0]["agent_ref"] = {"name": "nobody"}
    run = run_examples(given, here, enrich_results=True)
    tasks = list(run)
    for task in tasks:
        with pytest.raises(RowsError, match=r"row 0: .*nobody"):
            await task
    assert list(run) == []
    assert agent.seen == []


@pytest.mark.parametrize("answer", ["[", "plain", None, 5])
async def test_a_head_server_that_makes_no_sense(agent, answer):
    agent.gym = answer
    run = run_examples(rows(1), {"host": "127.0.0.1", "port": agent.port})
    with pytest.raises(OSError, match="global_config_dict_yaml"):
        await collect(run)


async def test_no_head_server():
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1/"):
        await collect(run_examples(rows(1), {"host": "127.0.0.1", "port": 1}))
