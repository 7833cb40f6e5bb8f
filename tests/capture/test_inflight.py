"""Calls in flight: seen by readers, held by one descriptor, gone with their process."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import httpx

from rollfold import _core
from rollfold.capture import CaptureMiddleware, Recorder

CHAT = "/v1/chat/completions"


def program(text, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_call_is_announced_until_its_record_is_on_disk(tmp_path, read_lines):
    recorder = Recorder(tmp_path)
    assert not _core.in_flight([tmp_path], "r")
    one, two = recorder.begin("r", "chat"), recorder.begin("r", "chat")
    assert _core.in_flight([tmp_path], "r")
    assert not _core.in_flight([tmp_path], "other")
    one.finish_here()
    assert _core.in_flight([tmp_path], "r")
    two.finish_here()
    assert not _core.in_flight([tmp_path], "r")
    assert len(read_lines(tmp_path, "r")) == 2


SERVER = """
    import asyncio, sys, uvicorn
    from rollfold.capture import CaptureMiddleware

    async def app(scope, receive, send):
        await receive()
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b": begun\\n\\n", "more_body": True})
        await asyncio.sleep(60)

    config = uvicorn.Config(
        CaptureMiddleware(app, root=sys.argv[1]), port=0, log_level="critical", lifespan="off"
    )
    server = uvicorn.Server(config)

    async def main():
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await task

    asyncio.run(main())
"""


def test_a_worker_killed_in_a_call_makes_nobody_wait(tmp_path):
    server = program(SERVER, tmp_path)
    try:
        port = int(server.stdout.readline())
        url = f"http://127.0.0.1:{port}/ng-rollout/0-0{CHAT}"
        with httpx.stream("POST", url, json={}) as answer:
            next(answer.iter_raw())
            assert _core.in_flight([tmp_path], "0-0")
            server.send_signal(signal.SIGKILL)
            server.wait(10)
            assert not _core.in_flight([tmp_path], "0-0")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_forked_child_does_not_hold_what_its_parent_announced(tmp_path):
    parent = program(
        """
        import os, sys, time
        from rollfold.capture import Recorder
        recorder = Recorder(sys.argv[1])
        call = recorder.begin("r", "chat")
        child = os.fork()
        if child == 0:
            # Its own calls are its own, and end with it.
            own = recorder.begin("child", "chat")
            own.finish_here()
            recorder.begin("open", "chat")
            print(os.getpid(), flush=True)
            time.sleep(60)
        time.sleep(60)
        """,
        tmp_path,
    )
    child = int(parent.stdout.readline())
    try:
        assert _core.in_flight([tmp_path], "r")
        assert _core.in_flight([tmp_path], "open")
        assert not _core.in_flight([tmp_path], "child")
        parent.kill()
        parent.wait(10)
        assert not _core.in_flight([tmp_path], "r")
        assert _core.in_flight([tmp_path], "open")
    finally:
        os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()
    while _core.in_flight([tmp_path], "open"):
        time.sleep(0.01)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_two_thousand_calls_in_flight_are_one_descriptor(tmp_path, read_lines):
    count = 2000
    arrived, go_on = [], asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        arrived.append(scope["path"])
        await go_on.wait()
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive():
        return {"type": "http.request", "body": b"{}"}

    async def send(message):
        pass

    async def load():
        middleware = CaptureMiddleware(app, root=tmp_path, durability="none")
        calls = [
            asyncio.create_task(
                middleware(
                    {
                        "type": "http",
                        "method": "POST",
                        "path": f"/ng-rollout/{number}-0{CHAT}",
                        "headers": [],
                    },
                    receive,
                    send,
                )
            )
            for number in range(count)
        ]
        while len(arrived) < count:  # noqa: ASYNC110 - the calls set it, all at once
            await asyncio.sleep(0.01)
        descriptors = open_descriptors()
        announced = [_core.in_flight([tmp_path], f"{n}-0") for n in range(count)]
        go_on.set()
        await asyncio.gather(*calls)
        return descriptors, announced

    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        descriptors, announced = asyncio.run(load())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors <= before + 5
    assert all(announced)
    assert not any(_core.in_flight([tmp_path], f"{n}-0") for n in range(count))
    assert all(len(read_lines(tmp_path, f"{n}-0")) == 1 for n in range(count))


def test_announcing_from_many_threads(tmp_path):
    recorder = Recorder(tmp_path, durability="none")

    def work(name):
        for number in range(50):
            recorder.begin(f"{name}-{number % 5}", "chat").finish_here()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.counts == {"recorded": 400}
    assert not any(_core.in_flight([tmp_path], f"{n}-{i}") for n in range(8) for i in range(5))
