"""`rollfold repair` on real files: what it mends, what it leaves, what it keeps."""

import fcntl
import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rollfold import _core
from rollfold.cli.repair import repair

STREAM = (
    'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}\n\n'
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    "data: [DONE]\n\n"
)


def record(call_id: str, response: object = None, raw: str | None = STREAM) -> dict[str, object]:
    return {
        "model_call_id": call_id,
        "dialect": "chat",
        "status_code": 200,
        "error_category": None,
        "request": {"maximum": 1},
        "response": response,
        "response_raw": raw,
    }


def line(*args: object) -> bytes:
    # The digits are those that neither a double nor 64 bits hold.
    text = json.dumps(record(*args)).replace('"maximum": 1', '"maximum": 18446744073709551616.50')
    return text.encode() + b"\n"


def run(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(repair, [str(directory), *options])


def whole(text: str) -> dict[str, object]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    return {"id": "c", "choices": [choice], "object": "chat.completion"}


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "0-0.capture.jsonl"
    path.write_bytes(
        line("good", whole("hello"))
        + b"\n"
        + line("null", None)
        + line("poorer", whole("he"))
        + b"\x00" * 30
        + line("padded", None)
        + b'{"model_call_id": "bad", "latency_ms": NaN}\n'
        + line("other", whole("jello"))
        + line("plain", whole("x"), None)
        + b'{"model_call_id": "torn", "response": nul'
    )
    path.chmod(0o640)
    return path


def test_repairs_what_is_missing_and_keeps_the_rest(capture: Path) -> None:
    before = capture.read_bytes()
    result = run(capture.parent)
    assert result.exit_code == 0
    assert "0-0.capture.jsonl:3: null: response filled in from response_raw" in result.output
    assert "0-0.capture.jsonl:4: poorer: response completed from response_raw" in result.output
    assert "0-0.capture.jsonl:7: other: left: response and response_raw contradict" in result.output
    assert "3 of 6 records repaired; 2 unreadable lines left as they are" in result.output
    kept = capture.with_name("0-0.capture.jsonl.orig")
    assert kept.read_bytes() == before
    assert capture.stat().st_mode & 0o777 == 0o640
    old, new = before.split(b"\n"), capture.read_bytes().split(b"\n")
    assert len(old) == len(new)
    for number in (0, 1, 5, 6, 7, 8):
        assert new[number] == old[number]
    for number in (2, 3, 4):
        assert b"18446744073709551616.50" in new[number]
        assert json.loads(new[number])["response"] == whole("hello")


def test_a_second_run_and_a_dry_run_change_nothing(capture: Path) -> None:
    before = capture.read_bytes()
    result = run(capture.parent, "--dry-run")
    assert "3 of 6 records would be repaired" in result.output
    assert capture.read_bytes() == before
    assert list(capture.parent.iterdir()) == [capture]
    run(capture.parent)
    once = capture.read_bytes()
    result = run(capture.parent)
    assert "0 of 6 records repaired" in result.output
    assert capture.read_bytes() == once
    assert len(list(capture.parent.iterdir())) == 2


def test_an_earlier_original_is_never_overwritten(capture: Path) -> None:
    run(capture.parent)
    first = capture.with_name(capture.name + ".orig").read_bytes()
    tail = b"\n" + line("later", None)
    with capture.open("ab") as file:
        file.write(tail)
    run(capture.parent)
    assert capture.with_name(capture.name + ".orig").read_bytes() == first
    assert capture.with_name(capture.name + ".orig.1").read_bytes().endswith(tail)


def test_a_file_that_is_being_written_is_left(capture: Path) -> None:
    before = capture.read_bytes()
    with capture.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        result = run(capture.parent, "--lock-wait", "0.05")
    assert result.exit_code == 1
    assert result.output.startswith(f"{capture}: ")
    assert result.output.count("\n") == 1
    assert capture.read_bytes() == before
    assert run(capture.parent).exit_code == 0


def test_a_body_cut_at_the_bound_is_left(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    path.write_text(json.dumps(record("a") | {"truncated": ["response"]}) + "\n")
    assert "left: response_raw was cut at the writer's bound" in run(tmp_path).output
    assert json.loads(path.read_text())["response"] is None


def test_an_empty_directory_and_a_missing_one(tmp_path: Path) -> None:
    assert run(tmp_path).output == f"{tmp_path}: no captures\n"
    assert run(tmp_path / "missing").exit_code == 2


def test_writers_lose_nothing_to_a_repair(tmp_path: Path) -> None:
    writer = _core.CaptureWriter(tmp_path, durability="none")
    total = 200

    def write() -> None:
        for number in range(total):
            writer.append("0-0", line(f"c{number}", None).rstrip(b"\n"))

    thread = threading.Thread(target=write)
    thread.start()
    path = tmp_path / "0-0.capture.jsonl"
    while thread.is_alive():
        if path.exists():
            _core.repair_capture(path)
    thread.join()
    _core.repair_capture(path)
    records = [json.loads(text) for text in path.read_bytes().splitlines()]
    assert [found["model_call_id"] for found in records] == [f"c{n}" for n in range(total)]
    assert all(found["response"] == whole("hello") for found in records)
