import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from rollfold import _core
from rollfold.capture import Recorder
from rollfold.capture.proxy import CaptureProxy

CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def proxying(upstream, captures, **options):
    """Run a proxy in a thread; gives its base URL and a way to stop it."""
    recorder = Recorder(captures, server_name="policy", max_body_bytes=options.pop("bound", None))
    server = CaptureProxy(upstream, recorder, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(90)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def through(captures):
    with contextlib.ExitStack() as stack:
        yield lambda upstream, **options: stack.enter_context(
            proxying(upstream, captures, **{"drain_s": 5.0, **options})
        )


@pytest.fixture
def base(model, serve, through):
    return through(serve(model))


def post(base, body, *, rollout="0-0", path=CHAT, **kwargs):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{base}/ng-rollout/{rollout}{path}", content=content, **kwargs)


def test_a_call_is_recorded_and_not_one_byte_changed(base, model, captures, read_lines, wire):
    sent = b'{"model": "m",\r\n "n": 36893488147419103232}'
    headers = {"x-session-id": "s1", "authorization": "Bearer SECRET", "x-custom": "1"}
    answer = post(base, sent, headers=headers, path=CHAT + "?beta=a%20b")
    assert answer.content == wire.answer
    assert model.bodies == [sent]
    scope = model.seen[0]
    assert (scope["path"], scope["query_string"]) == (CHAT, b"beta=a%20b")
    names = dict(scope["headers"])
    assert names[b"authorization"] == b"Bearer SECRET"
    assert names[b"x-custom"] == b"1"
    assert names[b"content-length"] == str(len(sent)).encode()
    assert names[b"host"] != base.removeprefix("http://").encode()
    [exchange] = read_lines(captures, "0-0")
    assert exchange["request"] == {"model": "m", "n": 36893488147419103232}
    assert exchange["response"] == json.loads(wire.answer)
    assert exchange["model_ref"]["name"] == "policy"
    assert exchange["client_session_id"] == "s1"
    assert exchange["upstream_attempted"] is True
    assert exchange["response_source"] == "upstream"
    assert exchange["upstream_status_code"] == 200
    assert "SECRET" not in (captures / "0-0.capture.jsonl").read_text()


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_stream_passes_at_once_and_ends_with_its_record_on_disk(  # noqa: PLR0917
    dialect, base, model, captures, read_lines, wire
):
    chunks = wire.chunks(dialect)
    got = b""
    url = f"{base}/ng-rollout/7-1{wire.paths[dialect]}"
    with httpx.stream("POST", url, json={"stream": True, "wait": True}) as answer:
        stream = answer.iter_raw()
        for number, chunk in enumerate(chunks):
            arrived = b""
            if number == len(chunks) - 1:
                model.go_on.set()
            while len(arrived) < len(chunk):
                arrived += next(stream)
            got += arrived
            assert len(read_lines(captures, "7-1")) == int(number == len(chunks) - 1)
            model.go_on.set()
        got += b"".join(stream)
    assert got == b"".join(chunks)
    [exchange] = read_lines(captures, "7-1")
    assert exchange["response_raw"] == got.decode()
    assert exchange["error_category"] is None


def test_what_has_no_prefix_passes(base, model, captures):
    assert httpx.post(base + CHAT, json={}).status_code == 200
    assert httpx.get(f"{base}/ng-rollout/0-0/files/a%2Fb%20c?x=%2B").status_code == 200
    assert model.seen[1]["raw_path"] == b"/files/a%2Fb%20c"
    assert model.seen[1]["query_string"] == b"x=%2B"
    assert httpx.post(f"{base}/ng-rollout/-x{CHAT}", json={}).status_code == 404
    assert httpx.get(f"{base}/healthz").json() == {"status": "ok", "in_flight": 0}
    assert len(model.seen) == 2
    assert not captures.exists()


def test_statuses_pass_and_are_recorded(base, captures, read_lines):
    for status in (400, 429, 503):
        assert post(base, {"mode": "status", "status": status}).status_code == status
    found = [(line["status_code"], line["error_category"]) for line in read_lines(captures, "0-0")]
    assert found == [(400, "client_error"), (429, "rate_limit"), (503, "upstream_error")]


def test_no_upstream(through, captures, read_lines):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    base = through(f"http://127.0.0.1:{port}")
    answer = post(base, {"q": 1})
    assert answer.status_code == 502
    [exchange] = read_lines(captures, "0-0")
    assert exchange["request"] == {"q": 1}
    assert exchange["response_source"] == "local"
    assert exchange["local_response_reason"] == "upstream_connection"
    assert exchange["status_code"] == 502
    assert exchange["response"] == answer.json()


def test_a_silent_upstream_is_given_up(through, serve, model, captures, read_lines):
    base = through(serve(model), read_timeout_s=0.3)
    assert post(base, {"mode": "slow", "seconds": 20}).status_code == 504
    [exchange] = read_lines(captures, "0-0")
    assert (exchange["error_category"], exchange["response_source"]) == ("timeout", "local")
    # Silent once it has begun: the client sees that the body was cut off.
    with pytest.raises(httpx.RemoteProtocolError):
        post(base, {"mode": "hang"}, rollout="0-1")
    [exchange] = read_lines(captures, "0-1")
    assert (exchange["status_code"], exchange["error_category"]) == (200, "timeout")
    assert exchange["response"]["choices"][0]["message"]["content"] == "for"


def test_an_upstream_that_dies_in_a_stream(base, captures, read_lines):
    with pytest.raises(httpx.RemoteProtocolError):
        post(base, {"mode": "dead"})
    [exchange] = read_lines(captures, "0-0")
    assert exchange["error_category"] == "connection"
    assert exchange["response"]["choices"][0]["message"]["content"] == "for"


def test_a_client_that_goes_away(base, captures, read_lines, eventually):
    with httpx.stream("POST", f"{base}/ng-rollout/0-0{CHAT}", json={"mode": "hang"}) as answer:
        next(answer.iter_raw())
    [exchange] = eventually(lambda: read_lines(captures, "0-0"))
    assert exchange["error_category"] == "cancelled"
    eventually(lambda: not _core.in_flight([captures], "0-0"))
    assert httpx.get(f"{base}/healthz").json()["in_flight"] == 0


def test_a_client_that_goes_away_while_it_sends(base, captures, read_lines, eventually):
    connection = http.client.HTTPConnection(base.removeprefix("http://"))
    connection.putrequest("POST", f"/ng-rollout/0-0{CHAT}")
    connection.putheader("content-length", "1000000")
    connection.endheaders(b'{"mode":')
    time.sleep(0.1)
    connection.close()
    [exchange] = eventually(lambda: read_lines(captures, "0-0"))
    assert exchange["error_category"] == "cancelled"
    assert exchange["request_raw"] == '{"mode":'


def test_connections_are_used_again(base, model):
    with httpx.Client() as client:
        for _ in range(5):
            assert client.post(f"{base}/ng-rollout/0-0{CHAT}", json={}).status_code == 200
    assert len({scope["client"] for scope in model.seen}) == 1


def resident_kb():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_a_slow_client_slows_the_upstream(base, model, captures, read_lines):
    """64 MB with a client that does not read: the proxy must not take it all in."""
    listener = socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])))
    events = 60_000
    body = json.dumps({"mode": "big", "events": events}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    listener.sendall(head.encode() + body)
    time.sleep(1.0)
    before = resident_kb()
    time.sleep(1.0)
    assert resident_kb() - before < 8_000
    received = 0
    while chunk := listener.recv(1 << 20):
        received += len(chunk)
        if chunk.endswith(b"0\r\n\r\n"):
            break
    listener.close()
    assert received > events * 1000


def test_redirects_of_the_upstream_keep_the_prefix(through, serve, model, captures):
    upstream = serve(model)
    base = through(upstream)
    for location, expected in [
        ("/v1/x?a=1", "/ng-rollout/0-0/v1/x?a=1"),
        (f"{upstream}/v1/x", "/ng-rollout/0-0/v1/x"),
        ("http://other.invalid/v1/x", "http://other.invalid/v1/x"),
    ]:
        answer = post(base, {"mode": "redirect", "location": location})
        assert answer.headers["location"] == expected


def test_an_upstream_with_a_path(through, serve, model, captures):
    upstream = serve(model)
    assert post(through(f"{upstream}/engine/v1"), {}).status_code == 200
    assert model.seen[0]["path"] == f"/engine{CHAT}"
    with pytest.raises(ValueError, match="upstream"):
        CaptureProxy("127.0.0.1:8000", Recorder(captures))


def test_the_sdks_do_not_notice(base, captures, read_lines):
    url = f"{base}/ng-rollout/3-4"
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], stream=True
        ) as chunks,
    ):
        said = "".join(c.choices[0].delta.content or "" for c in chunks)
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude,
        claude.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}]
        ) as stream,
    ):
        final = stream.get_final_message()
    assert said == final.content[0].text == "forty-two"
    chat, messages = read_lines(captures, "3-4")
    assert chat["response"]["choices"][0]["message"]["content"] == said
    assert messages["response"]["content"] == [{"type": "text", "text": "forty-two"}]


COMMAND = [sys.executable, "-m", "rollfold.cli", "proxy"]


def test_the_command_finishes_what_is_in_flight(serve, model, captures, read_lines):
    process = subprocess.Popen(
        [*COMMAND, "--upstream", serve(model), "--captures", captures, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert str(captures) in said
        base = said.split()[2]
        answers = []
        call = threading.Thread(
            target=lambda: answers.append(post(base, {"mode": "slow", "seconds": 1.0}))
        )
        call.start()
        while not model.bodies:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        call.join(20)
        assert answers[0].status_code == 200
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert len(read_lines(captures, "0-0")) == 1


def test_the_command_says_what_is_wrong_in_a_line(captures):
    for arguments, complaint in [
        (["--upstream", "nowhere"], "--upstream"),
        (["--upstream", "http://127.0.0.1:1", "--host", "192.0.2.1"], "cannot listen"),
        (["--upstream", "http://127.0.0.1:1", "--file-mode", "9"], "octal"),
        (["--upstream", "http://127.0.0.1:1", "--captures", "/dev/null/x"], "/dev/null"),
    ]:
        done = subprocess.run(
            [*COMMAND, "--captures", captures, "--port", "0", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
