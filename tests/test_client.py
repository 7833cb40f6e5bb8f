"""Addresses: out of a gym's configuration, and of one's own."""

import asyncio

import pytest

from rollfold.client import AgentClient, GymConfig, UnknownServerError, read_up_to
from tests.dispatch.conftest import Agent, rows, serving


def test_a_gyms_configuration_with_references(monkeypatch):
    monkeypatch.setenv("GYM_ROOT", "/data")
    config = GymConfig.from_mapping(
        {
            "default_host": "10.0.0.1",
            "ports": {"agent": 8001},
            "loop": "${loop}",
            "name": "agent",
            "agent": {
                "responses_api_agents": {"t": {"host": "${default_host}", "port": "${ports.agent}"}}
            },
            "env": {
                "environment_servers": {
                    "t": {"agent_server": {"name": "${name}"}, "host": "${loop}", "port": 1}
                }
            },
            "odd": {"x": "y", "z": {"t": 5}, "w": {"t": {"host": "h"}}},
            "list": [1],
            "none": None,
            "observability_enabled": True,
            "model_call_capture_dir": "${oc.env:GYM_ROOT,/tmp}/${oc.env:NO_SUCH_NAME,captures}",
        }
    )
    assert config.servers == {"agent": "http://10.0.0.1:8001", "env": "http://${loop}:1"}
    assert config.route("agent") == "env"
    assert config.route("other") == "other"
    assert str(config.capture_dir) == "/data/captures"


def test_a_gym_that_observes_nothing_has_no_captures():
    config = {"observability_enabled": False, "model_call_capture_dir": "/captures"}
    assert GymConfig.from_mapping(config).capture_dir is None
    assert GymConfig.from_mapping({}).capture_dir is None


async def test_an_agent_client_says_what_it_does_not_know():
    async with AgentClient({}) as client:
        with pytest.raises(UnknownServerError, match="'nobody'"):
            await client.post("nobody", "/run", {})


async def test_a_client_outlives_its_closing_and_a_url_may_have_a_path():
    async with serving(Agent()) as agent:
        client = AgentClient({"a": agent.url + "/"})
        for _ in range(2):
            response = await client.post("a", "/run", rows(1)[0])
            body, whole = await read_up_to(response, 1_000)
            assert whole
            assert b"reward" in body
            await client.aclose()
        nested = AgentClient({"a": agent.url + "/deep"})
        response = await nested.post("a", "/run", {})
        assert response.status == 404
        await nested.aclose()


async def test_a_connection_that_the_server_closed_is_not_used_again():
    """A server with a short keep-alive must not cost a run its request."""
    async with serving(Agent()) as agent, AgentClient({"a": agent.url}) as client:
        for _ in range(3):
            response = await client.post("a", "/run", rows(1)[0])
            await response.read()
            for handler in agent.runner.server.connections:
                handler.force_close()
            await asyncio.sleep(0.05)
        assert len(agent.seen) == 3
