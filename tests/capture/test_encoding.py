import gzip
import json
import logging
import random
import tracemalloc
import zlib

import brotli
import httpx
import pytest
import zstandard

from rollfold.capture import CaptureMiddleware, Recorder
from rollfold.capture import encoding as encoding_module
from rollfold.capture.encoding import decoder

CHAT = "/v1/chat/completions"
PLAIN = json.dumps({"id": "c1", "choices": [], "pad": "é" * 3000}).encode()


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "two members": ("gzip", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    "many members": ("gzip", lambda data: b"".join(gzip.compress(bytes([b])) for b in data)),
    "padding": ("gzip", lambda data: gzip.compress(data) + bytes(600)),
    "deflate": ("deflate", zlib.compress),
    "deflate without its header": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
    "two frames": (
        "zstd",
        lambda data: zstandard.compress(data[:7]) + zstandard.compress(data[7:]),
    ),
    "one in the other": ("gzip , br", lambda data: brotli.compress(gzip.compress(data))),
    "identity": ("identity", bytes),
    "not what it claims": ("gzip", bytes),
    "not deflate": ("deflate", bytes),
    "not br": ("br", bytes),
    "not zstd": ("zstd", bytes),
}


def unpacked(name, data, step):
    undo = decoder(name)
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    return b"".join(chunks if undo is None else [b"".join(undo.feed(chunk)) for chunk in chunks])


@pytest.mark.parametrize("step", [1, 2, 3, 1000, 10**6])
@pytest.mark.parametrize("kind", PACKED)
def test_whatever_the_encoding_the_body_comes_out(kind, step):
    name, pack = PACKED[kind]
    assert unpacked(name, pack(PLAIN), step) == PLAIN


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_any_bytes_are_taken(name):
    rng = random.Random(7)
    packed = {"gzip": gzip, "deflate": zlib, "br": brotli, "zstd": zstandard}[name].compress(PLAIN)
    for _ in range(200):
        broken = bytearray(packed[: rng.randrange(1, len(packed))])
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        unpacked(name, bytes(broken), rng.randrange(1, 50))
    noise = bytes([255]) + rng.randbytes(500)
    assert unpacked(name, noise, 11) == noise, "what is in no encoding is kept as it is"


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_small_body_that_says_a_huge_one_comes_out_in_pieces(pack):
    bomb = pack(bytes(80_000_000))
    undo = decoder("gzip")
    tracemalloc.start()
    size = sum(len(piece) for piece in undo.feed(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 80_000_000
    assert peak < 8 * encoding_module.PIECE


@pytest.mark.parametrize("kind", PACKED)
def test_bodies_are_recorded_as_what_they_say(kind, captures, serve, read_lines):
    name, pack = PACKED[kind]
    packed = pack(PLAIN)

    async def app(scope, receive, send):
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        headers = [(b"content-type", b"application/json"), (b"content-encoding", name.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at in range(0, len(packed), 500):
            part = packed[at : at + 500]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    url = f"{serve(CaptureMiddleware(app, root=captures))}/ng-rollout/0-0{CHAT}"
    with httpx.stream("POST", url, content=packed, headers={"content-encoding": name}) as answer:
        assert b"".join(answer.iter_raw()) == packed, "the wire keeps its bytes"
    [exchange] = read_lines(captures, "0-0")
    assert exchange["request"] == exchange["response"] == json.loads(PLAIN)
    assert exchange["error_category"] is None


def test_an_encoding_that_is_not_known_is_said_once(captures, read_lines, caplog):
    recorder = Recorder(captures)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            call = recorder.begin("0-0", "chat")
            call.request(b"{}")
            call.start(200, "text/event-stream", "compress")
            call.response(b"what it is")
            call.finish_here()
    assert [record.getMessage() for record in caplog.records] == [
        "bodies are recorded as they come: content encoding 'compress' is not known"
    ]
    for exchange in read_lines(captures, "0-0"):
        assert exchange["response_raw"] == "what it is"
        assert exchange["error_category"] == "capture_parse_error"


def test_a_library_that_is_not_there_is_named(monkeypatch):
    for name, package in encoding_module.NEEDS.items():
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(LookupError, match=f"pip install {package}"):
            decoder(name)
