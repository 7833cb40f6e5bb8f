"""The agent server: `/<agent>/run` takes a row, runs its agent and says what it is worth.

python -m demo.agent_server --port 8200 --model http://127.0.0.1:8100
"""

import argparse
import asyncio
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from demo.agents import AGENTS
from demo.observe import Observer
from rollfold.identity import rollout_id


def build(model_url: str) -> Starlette:
    """Make the application."""

    async def run(request: Request) -> Response:
        row: dict[str, Any] = await request.json()
        if row.get("trouble") == "fail":
            return JSONResponse({"error": "the sandbox of this task is gone"}, status_code=500)
        if row.get("trouble") == "slow":
            await asyncio.sleep(3)
        observer = Observer()
        agent = AGENTS[request.path_params["agent"]]
        answer = await agent(f"{model_url}/ng-rollout/{rollout_id(row)}", row["question"], observer)
        right = answer.strip() == str(row["answer"])
        return JSONResponse(
            {
                "reward": 1.0 if right else 0.0,
                "resolved": right,
                "response": {"output_text": answer},
                "ng_agent_observations": observer.bundle(),
            }
        )

    return Starlette(routes=[Route("/{agent}/run", run, methods=["POST"])])


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    uvicorn.run(build(options.model), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
