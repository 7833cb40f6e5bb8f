"""Run it all: two servers, 48 tasks, one collection; ends in its summary and the records' path.

python -m demo.run [DIRECTORY]
"""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from demo.agents import AGENTS
from demo.script import CUT

TASKS = 48
EXPECTED_EXIT = 1
"""One task fails for good, and `rollfold collect` says so."""


def free_port() -> int:
    """Find a port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(module: str, port: int, *arguments: str) -> Iterator[str]:
    """Run a server of this folder while the block runs."""
    command = [sys.executable, "-m", module, "--port", str(port), *arguments]
    process = subprocess.Popen(command)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise SystemExit(f"{module} ended with {process.returncode}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def write_tasks(path: Path) -> None:
    """Write the tasks: most are sound, one fails, one is slow, one has its stream cut."""
    agents = list(AGENTS)
    with path.open("w") as file:
        for number in range(TASKS):
            a, b, factor = 10 + number, 3 * number + 1, 2 + number // len(agents) % 9
            row = {
                "question": f"Compute ({a} + {b}) * {factor}",
                "answer": (a + b) * factor,
                "agent_ref": {"name": agents[number % len(agents)]},
            }
            if number == 4:
                row["trouble"] = "fail"
            if number == 8:
                row["trouble"] = "slow"
            if number == 9:
                row["question"] += f" {CUT}"
            file.write(json.dumps(row) + "\n")


def main() -> int:
    """Run the demo; 0 where it went as it should."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo").resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    captures = directory / "captures"
    write_tasks(directory / "tasks.jsonl")
    print(f"{TASKS} tasks; the model is a script, everything between the parts is real")
    with (
        server("demo.model_server", free_port(), "--captures", str(captures)) as model,
        server("demo.agent_server", free_port(), "--model", model) as agents,
    ):
        with urllib.request.urlopen(f"{model}/healthz") as answer:
            print(f"model server: {json.load(answer)['model']}")
        command = [sys.executable, "-m", "rollfold.cli", "collect"]
        command += ["--input", str(directory / "tasks.jsonl")]
        command += ["--output", str(directory / "rollouts.jsonl")]
        command += ["--captures", str(captures), "--concurrency", "16", "--require-captures"]
        for name in AGENTS:
            command += ["--agent", f"{name}={agents}/{name}"]
        code = subprocess.run(command, check=False).returncode
    print(f"exit code {code}: one of the tasks fails for good, the demo shows how that looks")
    print(f"its line: {directory / 'rollouts_failures.jsonl'}")
    return 0 if code == EXPECTED_EXIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
