"""The command line: help, exit codes, Ctrl-C, what is said when something is missing."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from tests.dispatch.conftest import Agent, serving


async def rollfold(*arguments, after=None):
    """Run the command; `after` gets the process while it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rollfold.cli", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if after is not None:
        await after(process)
    stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()


@pytest.fixture
async def agent():
    async with serving(Agent()) as server:
        yield server


@pytest.fixture
def task_file(tmp_path):
    def write(rows):
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


async def three_running(agent):
    while agent.running < 3:  # noqa: ASYNC110 (the server counts, it has no event)
        await asyncio.sleep(0.02)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_help_needs_no_subcommand_to_load():
    code, out, err = await rollfold("--help")
    assert (code, err) == (0, "")
    for name in ("collect", "enrich", "proxy", "repair"):
        assert f"  {name}" in out


@pytest.mark.parametrize("name", ["collect", "enrich", "proxy", "repair"])
async def test_every_subcommand_has_its_help(name):
    code, out, err = await rollfold(name, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: rollfold {name}" in out


async def test_an_unknown_command_is_a_usage_error():
    code, _, err = await rollfold("nonsense")
    assert code == 2
    assert "No such command" in err


async def test_collect_says_what_came_of_it(agent, task_file, tmp_path):
    tasks = task_file([{"n": 0}, {"n": 1, "do": "status", "status": 500}])
    output = tmp_path / "out.jsonl"
    arguments = ["collect", "--input", tasks, "--output", output, "--agent", f"a={agent.url}"]
    code, out, err = await rollfold(*arguments)
    assert code == 1
    assert "failed: agent_run_error" in out
    assert str(output) in out
    assert "1/2 rollouts done, 0 running, 1 failed" in err
    code, out, _ = await rollfold(*arguments, "--resume", "--retries", "1", "--json")
    assert code == 1
    summary = json.loads(out)
    assert (summary["rollouts"], summary["failed"]) == (1, 1)
    code, out, _ = await rollfold(*arguments, "--resume", "--retries", "1", "--require-captures")
    assert code == 3
    assert "0 of 1 rollouts have a recorded model call" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "a"], "'a' is not NAME=http"),
        (["--agent", "a=http://x", "--budget", "soon"], "'soon' is no duration"),
        (["--agent", "a=http://x", "--agent", "a=http://y"], "named twice"),
        ([], "give --agent"),
        (["--head", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["--head", "127.0.0.1:1"], "rollfold: http://127.0.0.1:1/"),
        (["--agent", "a=http://x"], "rollfold: {tasks}: line 1: "),
    ],
)
async def test_what_keeps_collect_from_starting_is_one_line(tmp_path, arguments, message):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("{\n")
    output = tmp_path / "out.jsonl"
    code, _, err = await rollfold("collect", "--input", tasks, "--output", output, *arguments)
    assert code == 2
    assert message.format(tasks=tasks) in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not output.exists()


async def test_one_ctrl_c_finishes_what_runs(agent, task_file, tmp_path):
    tasks = task_file([{"n": n, "sleep": 1.0} for n in range(9)])

    async def once(process):
        await three_running(agent)
        process.send_signal(signal.SIGINT)

    output = tmp_path / "out.jsonl"
    arguments = ["collect", "--input", tasks, "--output", output, "--agent", f"a={agent.url}"]
    arguments += ["--concurrency", "3"]
    code, _, err = await rollfold(*arguments, after=once)
    assert code == 4
    assert "again to cancel" in err
    assert len(records(output)) == 3
    left = records(tmp_path / "out_failures.jsonl")
    assert [r["_ng_omitted_rollout"] for r in left] == ["never_started"] * 6
    code, _, _ = await rollfold(*arguments, "--resume")
    assert code == 0
    assert sorted(r["_ng_task_index"] for r in records(output)) == list(range(9))
    assert all("_ng_attempt_index" not in r for r in records(output))


async def test_two_ctrl_c_cancel(agent, task_file, tmp_path):
    tasks = task_file([{"n": n, "sleep": 60} for n in range(5)])

    async def twice(process):
        await three_running(agent)
        process.send_signal(signal.SIGINT)
        await process.stderr.readuntil(b"again")
        process.send_signal(signal.SIGINT)

    output = tmp_path / "out.jsonl"
    arguments = ["collect", "--input", tasks, "--output", output, "--agent", f"a={agent.url}"]
    code, _, err = await rollfold(*arguments, "--concurrency", "3", after=twice)
    assert code == 4, err
    assert "Traceback" not in err
    why = [r["_ng_omitted_rollout"] for r in records(tmp_path / "out_failures.jsonl")]
    assert (why.count("interrupted"), why.count("never_started")) == (3, 2)


@pytest.mark.parametrize("module", ["click", "aiohttp", "rich"])
def test_a_missing_extra_is_one_line(tmp_path, module):
    (tmp_path / "tasks.jsonl").write_text("{}\n")
    code = (
        "import sys; sys.modules[sys.argv[1]] = None; sys.argv = sys.argv[1:]\n"
        "from rollfold.cli import main\n"
        "main(['collect', '--input', 'tasks.jsonl', '--output', 'o.jsonl', '--agent', 'a=http://127.0.0.1:1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, module],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("rollfold: install rollfold[collect]")
    assert "Traceback" not in done.stderr


async def test_a_full_disk_ends_the_run_and_a_resume_goes_on(agent, task_file, tmp_path):
    tasks = task_file([{"n": n, "do": "pad", "size": 4_000} for n in range(20)])
    output = tmp_path / "out.jsonl"
    arguments = ["collect", "--input", tasks, "--output", output, "--agent", f"a={agent.url}"]
    limited = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from rollfold.cli import main\n"
        "main(sys.argv[1:])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", limited, *map(str, arguments), "--repeats", "1", "--concurrency", "2",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, stderr = await process.communicate()
    assert process.returncode == 2, stderr
    assert stderr.decode().splitlines()[-1].startswith("rollfold: ")
    assert all(record["reward"] == 1 for record in records(output))
    code, _, _ = await rollfold(*arguments, "--resume")
    assert code == 0
    assert sorted(r["_ng_task_index"] for r in records(output)) == list(range(20))
