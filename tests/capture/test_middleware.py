import asyncio
import contextlib
import gzip
import http.client
import json
import logging
import os
import resource
import shutil
import stat
import time
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from rollfold import _core
from rollfold.capture import CaptureMiddleware
from rollfold.capture import middleware as middleware_module

CHAT = "/v1/chat/completions"


@pytest.fixture
def base(model, captures, serve):
    return serve(CaptureMiddleware(model, root=captures, server_name="policy"))


def post(base, body, *, rollout="0-0", path=CHAT, **kwargs):
    kwargs.setdefault("headers", {})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{base}/ng-rollout/{rollout}{path}", content=content, **kwargs)


def test_a_call_is_recorded_and_not_one_byte_changed(base, model, captures, read_lines, wire):
    sent = b'{"model": "m",\r\n "n": 36893488147419103232}'
    before = time.time()
    answer = post(base, sent, headers={"x-session-id": "s1", "authorization": "Bearer SECRET"})
    assert answer.content == wire.answer
    assert model.bodies == [sent]
    assert model.seen[0]["path"] == CHAT
    assert model.seen[0]["raw_path"] == CHAT.encode()
    [exchange] = read_lines(captures, "0-0")
    assert exchange["request"] == {"model": "m", "n": 36893488147419103232}
    assert exchange["response"] == json.loads(wire.answer)
    assert exchange["dialect"] == "chat"
    assert exchange["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert before <= exchange["started_at"] <= exchange["completed_at"] <= time.time()
    assert 0 <= exchange["latency_ms"] < 60_000
    assert exchange["latency_ttft_ms"] is None
    assert exchange["status_code"] == 200
    assert exchange["error_category"] is None
    assert exchange["client_session_id"] == "s1"
    assert isinstance(exchange["model_call_id"], str)
    text = (captures / "0-0.capture.jsonl").read_text()
    assert "SECRET" not in text
    assert "request_raw" not in exchange
    assert "response_raw" not in exchange


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
            # The server sends the next event only once this one has arrived.
            arrived = b""
            while len(arrived) < len(chunk):
                arrived += next(stream)
            got += arrived
            last = number == len(chunks) - 1
            assert len(read_lines(captures, "7-1")) == int(last)
            assert _core.in_flight([captures], "7-1") is not last
            model.go_on.set()
        got += b"".join(stream)
    assert got == b"".join(chunks)
    [exchange] = read_lines(captures, "7-1")
    assert exchange["response_raw"] == got.decode()
    assert "two" in json.dumps(exchange["response"])
    assert 0 < exchange["latency_ttft_ms"] <= exchange["latency_ms"]
    assert exchange["error_category"] is None


def test_events_before_the_terminal_one_do_not_wait_in_its_chunk(captures, serve, wire):
    whole = b"".join(wire.chunks("chat"))

    async def app(scope, receive, send):
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": whole, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    sent = []

    async def call():
        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            sent.append((message, (captures / "1-1.capture.jsonl").exists()))

        scope = {
            "type": "http", "method": "POST", "path": f"/ng-rollout/1-1{CHAT}", "headers": [],
        }  # fmt: skip
        await CaptureMiddleware(app, root=captures)(scope, receive, send)

    asyncio.run(call())
    bodies = [(m["body"], there) for m, there in sent if m["type"] == "http.response.body"]
    assert bodies == [
        (b"".join(wire.chunks("chat")[:-1]), False),
        (b"data: [DONE]\n\n", True),
        (b"", True),
    ]


def test_a_body_that_does_not_end_after_its_terminal_event(
    base, captures, read_lines, monkeypatch, wire
):
    monkeypatch.setattr(middleware_module, "END_WAIT_S", 0.2)
    url = f"{base}/ng-rollout/0-0{CHAT}"
    with httpx.stream("POST", url, json={"mode": "stream", "never_end": True}) as answer:
        stream, got = answer.iter_raw(), b""
        while not got.endswith(b"[DONE]\n\n"):
            got += next(stream)
        assert read_lines(captures, "0-0")[0]["error_category"] is None


def test_what_has_no_prefix_or_no_record_passes(base, model, captures):
    assert httpx.post(base + CHAT, json={}).status_code == 200
    assert httpx.post(f"{base}/ng-rollout/0-0/v1/embeddings", json={}).status_code == 200
    assert httpx.get(f"{base}/ng-rollout/0-0/v1/models").status_code == 200
    assert httpx.get(f"{base}/ng-rollout/0-0{CHAT}").status_code == 200
    paths = [scope["path"] for scope in model.seen]
    assert paths == [CHAT, "/v1/embeddings", "/v1/models", CHAT]
    assert not captures.exists()


def test_the_token_capture_segment_goes_too(base, model, captures, read_lines):
    assert post(base, {}, path="/training-token-capture" + CHAT).status_code == 200
    assert model.seen[0]["path"] == CHAT
    assert len(read_lines(captures, "0-0")) == 1


def test_escapes_in_the_rest_of_the_path_stay(base, model):
    assert httpx.get(f"{base}/ng-rollout/0-0/files/a%2Fb%20c").status_code == 200
    assert model.seen[0]["path"] == "/files/a/b c"
    assert model.seen[0]["raw_path"] == b"/files/a%2Fb%20c"


@pytest.mark.parametrize("bad", [".hidden", "..", "a%20b", "%2e%2e%2f0-0", "x" * 201, "", "%C3%A9"])
def test_an_invalid_id_is_refused_and_nothing_written(bad, base, model, captures, tmp_path):
    # Clients resolve dots before they send: this one does not.
    connection = http.client.HTTPConnection(base.removeprefix("http://"))
    connection.request("POST", f"/ng-rollout/{bad}{CHAT}", b"{}")
    answer = connection.getresponse()
    assert answer.status == 404
    assert "invalid rollout id" in json.load(answer)["error"]["message"]
    connection.close()
    assert model.seen == []
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, "client_error"), (401, "auth"), (403, "auth"), (404, "not_found"),
        (408, "timeout"), (422, "client_error"), (429, "rate_limit"), (500, "upstream_error"),
        (503, "upstream_error"), (504, "timeout"),
    ],
)  # fmt: skip
def test_a_status_is_recorded_with_its_category(status, category, base, captures, read_lines):
    assert post(base, {"mode": "status", "status": status}).status_code == status
    [exchange] = read_lines(captures, "0-0")
    assert (exchange["status_code"], exchange["error_category"]) == (status, category)
    assert exchange["response"] == {"error": {"message": "no"}}


@pytest.mark.parametrize("error", ["timeout", "connection", "exception"])
def test_an_exception_is_recorded_and_goes_on(error, base, captures, read_lines):
    assert post(base, {"mode": "crash", "error": error}).status_code == 500  # uvicorn's own
    [exchange] = read_lines(captures, "0-0")
    assert (exchange["status_code"], exchange["error_category"]) == (None, error)
    assert exchange["request"]["mode"] == "crash"
    assert exchange["response"] is None


def test_a_stream_that_is_cut_keeps_what_it_had(base, captures, read_lines):
    post(base, {"mode": "cut"})
    [exchange] = read_lines(captures, "0-0")
    assert exchange["error_category"] == "stream_truncated"
    assert exchange["response"]["choices"][0]["message"]["content"] == "for"
    with pytest.raises(httpx.RemoteProtocolError):
        post(base, {"mode": "dead"}, rollout="0-1")
    [exchange] = read_lines(captures, "0-1")
    assert (exchange["status_code"], exchange["error_category"]) == (200, "exception")
    assert exchange["response"]["choices"][0]["message"]["content"] == "for"


def test_a_client_that_goes_away_is_recorded(base, captures, read_lines, eventually):
    with httpx.stream("POST", f"{base}/ng-rollout/0-0{CHAT}", json={"mode": "hang"}) as answer:
        next(answer.iter_raw())
        assert _core.in_flight([captures], "0-0")
    [exchange] = eventually(lambda: read_lines(captures, "0-0"))
    assert exchange["error_category"] == "cancelled"
    assert exchange["response"]["choices"][0]["message"]["content"] == "for"
    eventually(lambda: not _core.in_flight([captures], "0-0"))


def test_bodies_that_are_no_json_objects(base, captures, read_lines):
    post(base, b"[1, 2]")
    post(base, b'{"mode": "plain", "top_p": NaN, "t": "\\ud83d"}')
    post(base, {"mode": "html"})
    first, second, third = read_lines(captures, "0-0")
    assert (first["request"], first["request_raw"]) == (None, "[1, 2]")
    assert second["request"] == {"mode": "plain", "top_p": None, "t": "\ufffd"}
    assert second["request_raw"] == '{"mode": "plain", "top_p": NaN, "t": "\\ud83d"}'
    assert third["response"] is None
    assert third["response_raw"] == "<html>\ufffd</html>"
    assert third["error_category"] == "capture_parse_error"


@pytest.mark.parametrize("sse", [False, True])
def test_a_compressed_body_is_recorded_as_what_it_says(sse, base, captures, read_lines, wire):
    answer = post(base, {"mode": "zipped", "sse": sse})
    plain = b"".join(wire.chunks("chat")) if sse else wire.answer
    assert answer.content == plain
    assert answer.headers["content-encoding"] == "gzip"
    request = gzip.compress(b'{"mode": "plain"}')
    post(base, request, headers={"content-encoding": "gzip"})
    first, second = read_lines(captures, "0-0")
    assert first["error_category"] is None
    assert first["response"]["choices" if sse else "big"]
    assert first.get("response_raw") == (plain.decode() if sse else None)
    assert second["request"] == {"mode": "plain"}


def test_a_session_id_counts_where_there_is_exactly_one(base, captures, read_lines):
    for headers in ([("x-session-id", "a"), ("X-Session-Id", "b")], [("x-session-id", "")], []):
        post(base, {}, headers=headers)
    assert ["client_session_id" in line for line in read_lines(captures, "0-0")] == [False] * 3


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/v1/x?a=1#f", "/ng-rollout/0-0/v1/x?a=1#f"),
        ("{base}/v1/x", "{base}/ng-rollout/0-0/v1/x"),
        ("http://other.invalid/v1/x", "http://other.invalid/v1/x"),
        ("/ng-rollout/0-0/v1/x", "/ng-rollout/0-0/v1/x"),
        ("x", "x"),
    ],
)
def test_redirects_of_the_same_origin_keep_the_prefix(location, expected, base):
    answer = post(base, {"mode": "redirect", "location": location.format(base=base)})
    assert answer.headers["location"] == expected.format(base=base)


def test_a_mounted_application(model, captures, read_lines):
    messages = iter([{"type": "http.request", "body": b"{}"}])
    sent = []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "root_path": "/api", "headers": [],
        "path": f"/api/ng-rollout/0-0{CHAT}", "raw_path": f"/api/ng-rollout/0-0{CHAT}".encode(),
    }  # fmt: skip
    asyncio.run(CaptureMiddleware(model, root=captures)(scope, receive, send))
    assert model.seen[0]["path"] == f"/api{CHAT}"
    assert model.seen[0]["raw_path"] == f"/api{CHAT}".encode()
    assert len(read_lines(captures, "0-0")) == 1


def test_what_the_handler_alone_knows_is_recorded(captures, serve, read_lines):

    async def chat(request):
        request.state.rollfold_exchange = {
            "upstream_attempted": False,
            "response_source": "local",
            "upstream_status_code": "503",
            "local_response_reason": "context_length_exceeded",
        }
        return JSONResponse({"choices": []})

    app = Starlette(routes=[Route(CHAT, chat, methods=["POST"])])
    app.add_middleware(CaptureMiddleware, root=captures)
    post(serve(app), {})
    [exchange] = read_lines(captures, "0-0")
    assert exchange["upstream_attempted"] is False
    assert exchange["response_source"] == "local"
    assert exchange["local_response_reason"] == "context_length_exceeded"
    assert "upstream_status_code" not in exchange


def test_files_are_private_unless_told_otherwise(model, captures, tmp_path, serve):
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    post(serve(CaptureMiddleware(model, root=captures)), {})
    assert mode(captures) == 0o700
    assert {mode(path) for path in captures.iterdir()} == {0o600}
    wide = tmp_path / "wide"
    post(serve(CaptureMiddleware(model, root=wide, file_mode=0o664, dir_mode=0o775)), {})
    assert {mode(path) for path in wide.iterdir()} == {0o664}


def test_redaction_comes_before_the_disk(model, captures, serve, read_lines, caplog):
    def redact(exchange):
        if exchange["request"].get("fail"):
            raise KeyError("no")
        exchange["request"]["user"] = "x"

    base = serve(CaptureMiddleware(model, root=captures, redact=redact))
    post(base, {"user": "SECRET", "n": 2**70})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert post(base, {"fail": 1, "user": "SECRET"}, rollout="0-1").status_code == 200
    assert [line["request"] for line in read_lines(captures, "0-0")] == [{"user": "x", "n": 2**70}]
    assert read_lines(captures, "0-1") == []
    assert (captures / "0-1.capture.incomplete").exists()
    assert len([r for r in caplog.records if r.name == "rollfold.capture"]) == 1


def test_a_bound_on_what_is_kept(model, captures, serve, read_lines):
    base = serve(CaptureMiddleware(model, root=captures, max_body_bytes=100))
    answer = post(base, {"mode": "big", "events": 300})
    assert len(answer.content) > 300_000
    post(base, {"mode": "plain", "pad": "x" * 200, "answer": "{}"})
    first, second = read_lines(captures, "0-0")
    assert first["truncated"] == ["response"]
    assert first["request"] == {"mode": "big", "events": 300}
    assert first["response"] is None
    assert first["response_raw"] == answer.text[:100]
    assert first["error_category"] is None
    assert second["truncated"] == ["request"]
    assert second["request"] is None
    assert len(second["request_raw"]) == 100
    assert second["response"] == {}


@pytest.mark.parametrize("kind", ["no directory", "no room", "no file"])
def test_capturing_never_fails_a_call(kind, model, tmp_path, serve, caplog):
    captures = tmp_path / "captures"
    if kind == "no directory":
        captures.write_text("a file where the directory should be")
    else:
        captures.mkdir()
        path = captures / "0-0.capture.jsonl"
        if kind == "no room":
            path.symlink_to("/dev/full")
        else:
            path.mkdir()
    base = serve(CaptureMiddleware(model, root=captures))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert post(base, {}).status_code == 200
            assert post(base, {"stream": True}).text.endswith("[DONE]\n\n")
    written = [r.getMessage() for r in caplog.records if "not captured" in r.getMessage()]
    assert len(written) == 1
    assert "\n" not in written[0]
    if kind != "no directory":
        assert (captures / "0-0.capture.incomplete").exists()


def test_a_directory_that_is_removed_comes_back(base, captures, read_lines):
    post(base, {})
    shutil.rmtree(captures)
    post(base, {})
    assert len(read_lines(captures, "0-0")) == 1


def test_the_sdks_do_not_notice(base, captures, read_lines):
    url = f"{base}/ng-rollout/3-4"
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        with client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], stream=True
        ) as chunks:
            said = "".join(c.choices[0].delta.content or "" for c in chunks)
        with client.responses.create(model="m", input="q", stream=True) as events:
            kinds = [event.type for event in events]
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude,
        claude.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}]
        ) as stream,
    ):
        final = stream.get_final_message()
    assert said == "forty-two"
    assert kinds[-1] == "response.completed"
    assert final.content[0].text == "forty-two"
    chat, responses, messages = read_lines(captures, "3-4")
    assert chat["response"]["choices"][0]["message"]["content"] == said
    assert responses["response"]["output"][0]["content"][0]["text"] == "forty-two"
    assert messages["response"]["content"] == [{"type": "text", "text": "forty-two"}]
    assert messages["response"]["usage"] == {"input_tokens": 3, "output_tokens": 5}


def call_directly(app, captures, chunks, sent=None):
    """Make a call through the middleware without a server."""
    sent = [] if sent is None else sent
    first = len(sent)

    async def inner(scope, receive, send):
        await receive()
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})

    async def receive():
        return {"type": "http.request", "body": bytearray(b"{}")}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": f"/ng-rollout/0-0{CHAT}", "headers": []}
    asyncio.run(app(inner)(scope, receive, send))
    return b"".join(bytes(message.get("body", b"")) for message in sent[first:])


def test_whatever_kind_of_bytes(captures, read_lines, wire):
    chunks = [bytearray(wire.chunks("chat")[1]), memoryview(b"".join(wire.chunks("chat")[2:]))]
    got = call_directly(lambda app: CaptureMiddleware(app, root=captures), captures, chunks)
    assert got == b"".join(map(bytes, chunks))
    [exchange] = read_lines(captures, "0-0")
    assert exchange["request"] == {}
    assert exchange["response_raw"].encode() == got


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_large_message_with_the_end_in_it_goes_on_in_parts(dialect, captures, read_lines, wire):
    comment = b":" + b"x" * 300_000 + b"\n\n"
    *before, end = wire.chunks(dialect)
    for chunk in (comment + b"".join(before) + end + comment, end + comment, comment + end):
        sent = []
        for kind in (bytes, bytearray, memoryview):
            got = call_directly(
                lambda app: CaptureMiddleware(app, root=captures), captures, [kind(chunk)], sent
            )
            assert got == chunk
            assert read_lines(captures, "0-0")[-1]["response_raw"].encode() == chunk
        assert max(len(message.get("body", b"")) for message in sent) < 100_000 or chunk[:1] != b":"


def test_no_descriptor_left(captures, read_lines, wire, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []

    def app(inner):
        async def starve(scope, receive, send):
            # The call is accepted; then others take every descriptor there is.
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(0))
            await inner(scope, receive, send)

        return CaptureMiddleware(starve, root=captures)

    try:
        got = call_directly(app, captures, wire.chunks("chat"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert got == b"".join(wire.chunks("chat"))
    assert "Too many open files" in caplog.text


def test_needs_a_place(model):
    with pytest.raises(TypeError, match="root="):
        CaptureMiddleware(model)
    with pytest.raises(ValueError, match="durability"):
        CaptureMiddleware(model, root="x", durability="always")
