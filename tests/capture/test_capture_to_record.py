"""From a call that passes to the record that holds it: writers and the fold together."""

import asyncio
import collections
import fcntl
import json
import random
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import httpx
import pytest

import rollfold
from rollfold import enrich_run_result, enrich_run_result_async
from rollfold.capture import CaptureMiddleware, CaptureStore, Recorder

CHAT = "/v1/chat/completions"
ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0}


def enriched(captures, row=ROW, **options):
    return enrich_run_result(
        row, {"reward": 1.0}, capture_dirs=[captures], observability_enabled=True, **options
    )


def codes(result):
    return [gap["code"] for gap in result["ng_model_call_capture"].get("gaps", [])]


def test_a_call_that_ends_after_the_agent_returned_is_in_the_record(model, captures, serve):
    base = serve(CaptureMiddleware(model, root=captures))
    url = f"{base}/ng-rollout/0-0{CHAT}"
    httpx.post(url, json={})
    body = {"mode": "slow", "seconds": 0.3}
    late = threading.Thread(target=lambda: httpx.post(url, json=body, timeout=60))
    late.start()
    while len(model.bodies) < 2:
        time.sleep(0.005)
    result = enriched(captures, quiescence_timeout_s=60.0)
    late.join()
    assert len(result["ng_model_call_capture"]["calls"]) == 2
    assert "gaps" not in result["ng_model_call_capture"]


async def test_the_async_form_waits_in_the_server_s_own_process(captures):
    recorder = Recorder(captures)
    call = recorder.begin("0-0", "chat")
    call.request(b'{"messages": []}')
    call.start(200, "application/json")

    async def end_soon():
        await asyncio.sleep(0.3)
        call.response(b'{"choices": []}')
        await call.settle()

    ending = asyncio.create_task(end_soon())
    result = await enrich_run_result_async(
        ROW, {}, capture_dirs=[captures], observability_enabled=True, quiescence_timeout_s=60.0
    )
    await ending
    [record] = result["ng_model_call_capture"]["calls"]
    assert record["status_code"] == 200
    assert "gaps" not in result["ng_model_call_capture"]


def test_a_call_that_does_not_end_is_said_and_its_capture_kept(captures):
    recorder = Recorder(captures)
    recorder.begin("0-0", "chat").finish_here()
    hanging = recorder.begin("0-0", "chat")
    result = enriched(captures, quiescence_timeout_s=0.05, delete_capture=True)
    assert codes(result) == ["model_call_capture_not_quiescent"]
    assert len(result["ng_model_call_capture"]["calls"]) == 1
    hanging.finish_here()
    result = enriched(captures, delete_capture=True)
    assert codes(result) == []
    assert len(result["ng_model_call_capture"]["calls"]) == 2
    assert not CaptureStore(captures).path_for("0-0").exists()


def test_a_killed_writer_is_not_waited_for(captures):
    program = """
        import os, signal, sys
        from rollfold.capture import Recorder
        recorder = Recorder(sys.argv[1])
        recorder.begin("0-0", "chat").finish_here()
        recorder.begin("0-0", "chat")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), captures], check=False)
    waited = rollfold.stats().get("wait_s", 0)
    # Were it announced still, this would run into the test's time-out.
    result = enriched(captures, quiescence_timeout_s=10_000.0)
    assert codes(result) == []
    assert len(result["ng_model_call_capture"]["calls"]) == 1
    assert rollfold.stats().get("wait_s", 0) == waited


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_stream_becomes_a_call_with_its_answer(dialect, model, captures, serve, wire):
    base = serve(CaptureMiddleware(model, root=captures, server_name="policy"))
    url = f"{base}/ng-rollout/0-0{wire.paths[dialect]}"
    httpx.post(url, json={"stream": True}, headers={"x-session-id": "agent"})
    result = {
        "ng_agent_observations": {
            "source": "test",
            "records": [{"kind": "agent_invocation", "invocation_id": "agent"}],
            "gaps": [],
        }
    }
    enrich_run_result(ROW, result, capture_dirs=[captures], observability_enabled=True)
    [turn] = result["ng_trajectory"]["turns"]
    assert "forty-two" in json.dumps(turn["answer"])
    [call] = result["ng_model_call_capture"]["calls"]
    assert call["client_session_id"] == "agent"
    assert call["latency_ttft_ms"] > 0
    assert call["error_category"] is None


def test_bounded_bodies_still_count_as_calls(model, captures, serve):
    base = serve(CaptureMiddleware(model, root=captures, max_body_bytes=10))
    httpx.post(f"{base}/ng-rollout/0-0{CHAT}", json={"mode": "plain"})
    [call] = enriched(captures)["ng_trajectory"]["model_calls"]
    assert call["request"] == '{"mode":"p'


WRITERS = """
    import random, sys, threading
    from rollfold.capture import CaptureStore
    root, name, threads, each, rollouts = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    store = CaptureStore(root, durability="none")

    def write(thread):
        chance = random.Random(f"{name}{thread}")
        for number in range(each):
            exchange = {"model_call_id": f"{name}-{thread}-{number}", "dialect": "chat"}
            store.record(f"0-{chance.randrange(rollouts)}", exchange)

    running = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
"""


def test_every_record_is_in_exactly_one_result(tmp_path):
    """Two processes of 8 threads write 10,000 records; finished rollouts are taken away."""
    threads, each, rollouts = 8, 625, 50
    command = [sys.executable, "-c", textwrap.dedent(WRITERS)]
    numbers = map(str, (threads, each, rollouts))
    arguments = list(numbers)
    writers = [subprocess.Popen([*command, tmp_path, name, *arguments]) for name in "ab"]
    chance = random.Random(1)
    found, deletions = collections.Counter(), 0

    def take(number):
        nonlocal deletions
        before = rollfold.stats().get("captures_deleted", 0)
        row = {"_ng_task_index": 0, "_ng_rollout_index": number}
        result = enriched(tmp_path, row, delete_capture=True)
        assert not set(codes(result)) - {"model_call_capture_no_records"}
        # A result whose capture was kept is enriched again later: it does not count.
        if rollfold.stats().get("captures_deleted", 0) > before:
            deletions += 1
            found.update(c["model_call_id"] for c in result["ng_model_call_capture"]["calls"])

    while any(writer.poll() is None for writer in writers):
        take(chance.randrange(rollouts))
    assert [writer.returncode for writer in writers] == [0, 0]
    during = deletions
    for number in range(rollouts):
        take(number)
    assert set(found.values()) == {1}
    assert set(found) == {
        f"{name}-{thread}-{number}"
        for name in "ab"
        for thread in range(threads)
        for number in range(each)
    }
    assert during > 5, "nothing was taken while they wrote: the test tests nothing"
    assert not list(tmp_path.glob("*.capture*"))


def test_a_foreign_writer_that_meets_a_deletion_is_read_later(tmp_path):
    """One that waits for the lock and does not look where its file went meanwhile."""
    program = """
        import fcntl, sys
        for line in sys.stdin:
            with open(sys.argv[1], "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(line.encode())
                file.flush()
            print("done", flush=True)
    """
    store = CaptureStore(tmp_path, durability="none")
    path = store.path_for("0-0")
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # Blocked before the file is claimed, let go while it is.
    store.record("0-0", {"model_call_id": "a"})
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        writer.stdin.write('{"model_call_id": "b"}\n')
        writer.stdin.flush()
        # It waits once the kernel lists it as waiting.
        inode = f":{path.stat().st_ino} "
        while not any(
            "->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
        ):
            time.sleep(0.005)
    result = enriched(tmp_path, delete_capture=True)
    assert writer.stdout.readline() == "done\n"
    writer.stdin.close()
    writer.wait()
    writer.stdout.close()
    again = enriched(tmp_path)
    said = {call["model_call_id"] for call in again["ng_model_call_capture"]["calls"]}
    first = {call["model_call_id"] for call in result["ng_model_call_capture"]["calls"]}
    # Either it came before the read, or it is in the late file: never nowhere.
    assert "b" in said | first
    if "b" not in first:
        assert said == {"a", "b"}
