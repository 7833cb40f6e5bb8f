import errno
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollfold import _core
from rollfold.capture import CaptureStore, clear_model_call_captures_for_rollouts
from rollfold.errors import CaptureError, CaptureLineError, RollfoldError, RolloutIdError


@pytest.fixture
def store(tmp_path):
    return CaptureStore(tmp_path / "captures")


def test_paths_come_from_checked_ids(store):
    assert store.path_for("0-1-a2") == store.root / "0-1-a2.capture.jsonl"
    assert store.incomplete_path_for("x") == store.root / "x.capture.incomplete"
    assert store.late_path_for("x") == store.root / "x.capture.late.jsonl"
    for bad in ("", "../x", "a/b", ".a", "a\n", "é", "x" * 201):
        for ask in (
            store.path_for,
            store.incomplete_path_for,
            store.mark_incomplete,
            store.is_incomplete,
            store.in_flight,
            store.clear,
            lambda name: store.record(name, {}),
        ):
            with pytest.raises(ValueError, match="invalid rollout id"):
                ask(bad)
    assert not store.root.exists()


def test_a_record_is_one_line_of_strict_json(store, read_lines):
    store.record("0-0", {"model_call_id": "a", "request": {"n": 2**80, "t": "\ud83d \u2028"}})
    store.record(
        "0-0",
        {
            "model_call_id": "b",
            "latency_ms": math.inf,
            "request": {"at": datetime(2026, 1, 1, tzinfo=UTC)},
            "response": {"p": [math.nan]},
        },
    )
    first, second = read_lines(store.root, "0-0")
    assert first["request"] == {"n": 2**80, "t": "\ufffd \u2028"}
    assert second["latency_ms"] is None
    assert second["request"]["at"].startswith("2026-01-01")
    assert second["response"] == {"p": [None]}
    assert second["response_raw"] == '{"p": [NaN]}'
    assert "request_raw" not in second


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(body=st.dictionaries(st.text(), JSON, max_size=3))
def test_any_body_is_written_and_read(body, tmp_path_factory):
    store = CaptureStore(tmp_path_factory.mktemp("c"), durability="none")
    store.record("r", {"response": body})
    data = store.path_for("r").read_bytes()
    assert data.count(b"\n") == 1
    assert "response" in _core.loads(data)


def test_the_marker(store):
    assert not store.is_incomplete("r")
    store.mark_incomplete("r")
    store.mark_incomplete("r")
    assert store.is_incomplete("r")
    assert store.incomplete_path_for("r").read_bytes() == b""


def test_what_cannot_be_written_is_an_error_and_marks(store):
    store.path_for("r").mkdir(parents=True)
    with pytest.raises(CaptureError) as caught:
        store.record("r", {})
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, RollfoldError)
    assert caught.value.errno == errno.EISDIR
    assert "r.capture.jsonl" in str(caught.value)
    assert store.is_incomplete("r")


def test_clear_takes_exactly_the_given_attempts(store):
    for name in ("0-0", "0-0-a1", "0-1"):
        store.record(name, {})
        store.mark_incomplete(name)
    store.late_path_for("0-0").write_text("{}\n")
    assert store.clear("0-0") == 3
    assert store.clear(["0-0", "0-1"]) == 2
    assert sorted(path.name for path in store.root.iterdir()) == [
        "0-0-a1.capture.incomplete",
        "0-0-a1.capture.jsonl",
    ]


def test_clear_for_rows(store, tmp_path):
    other = CaptureStore(tmp_path / "other")
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": 1},
        {"question": "no identity"},
        {"_ng_rollout_id": "named"},
    ]
    for place in (store, other):
        for name in ("0-0", "0-0-a1", "named"):
            place.record(name, {})
    assert clear_model_call_captures_for_rollouts(rows, [store.root, other.root]) == 4
    assert store.path_for("0-0").exists()
    assert not other.path_for("named").exists()
    with pytest.raises(RolloutIdError):
        clear_model_call_captures_for_rollouts(
            [{"_ng_rollout_id": "0-0"}, {"_ng_rollout_id": "../x"}], [store.root]
        )
    assert store.path_for("0-0").exists()
    assert clear_model_call_captures_for_rollouts(rows, []) == 0


def test_a_deletion_takes_what_was_read_and_keeps_what_was_not(store):
    store.record("r", {"model_call_id": "a"})
    reading = _core.CaptureReading([store.root], "r")
    assert json.loads(reading.data) == {"model_call_id": "a"}
    store.record("r", {"model_call_id": "b"})
    assert reading.delete() == "grew after it was read"
    again = _core.CaptureReading([store.root], "r")
    assert again.data.count(b"\n") == 2
    assert again.delete() == "deleted"
    assert not _core.CaptureReading([store.root], "r").found


def test_durability_is_checked(tmp_path):
    with pytest.raises(ValueError, match="durability"):
        CaptureStore(tmp_path, durability="fast")
    lazy = CaptureStore(tmp_path, durability="batch")
    lazy.record("r", {})
    lazy.sync()
    lazy.sync()


def test_what_was_recorded_is_read(store):
    exchanges = [
        {"model_call_id": "a", "request": {"n": 2**80, "x": 1.5}, "response": None},
        {"model_call_id": "b", "request": {}, "response_raw": "x\u2028"},
    ]
    assert store.read("r") == []
    assert store.read_available("r") == ([], 0)
    for exchange in exchanges:
        store.record("r", exchange)
    assert store.read("r") == exchanges
    assert store.read_available("r") == (list(enumerate(exchanges)), 0)


def test_bad_lines_cost_themselves(store):
    store.record("r", {"model_call_id": "a"})
    with store.path_for("r").open("ab") as file:
        file.write(b'{"model_call_id": 7}\n{"model_call_id": "b", "dia')
    store.record("r", {"model_call_id": "c", "request": "text", "response_raw": 3})
    store.late_path_for("r").write_text('{"model_call_id": "l"}\n[]\n')
    found, unreadable = store.read_available("r")
    assert [(index, record["model_call_id"]) for index, record in found] == [
        (0, "l"),
        (2, "a"),
        (5, "c"),
    ]
    assert unreadable == 3
    assert found[2][1] == {"model_call_id": "c", "request": None, "response_raw": None}
    with pytest.raises(CaptureLineError, match=r"r\.capture\.late\.jsonl: line 2, byte 23: not"):
        store.read("r")
    store.path_for("r").unlink()
    store.path_for("r").mkdir()
    with pytest.raises(CaptureError, match="not a regular file"):
        store.read_available("r")


def grants_leases(directory):
    """Whether the kernel tells here who has a file open for writing."""
    path = directory / "lease"
    path.touch()
    with path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            return False
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


FOREIGN = """
import sys
with open(sys.argv[1], "ab") as file:
    print("open", flush=True)
    sys.stdin.readline()
    file.write(b'{"model_call_id":"late"}\\n')
    file.flush()
    print("written", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("writes", ["while the file is taken", "a second later"])
def test_a_writer_that_has_the_file_open_and_no_lock_loses_nothing(tmp_path, writes):
    if not grants_leases(tmp_path):
        pytest.skip("no leases on this file system")
    store = CaptureStore(tmp_path)
    store.record("r", {"model_call_id": "a"})
    with subprocess.Popen(
        [sys.executable, "-c", FOREIGN, store.path_for("r")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as foreign:
        assert foreign.stdout.readline() == "open\n"
        reading = _core.CaptureReading([tmp_path], "r")
        with ThreadPoolExecutor() as pool:
            outcome = pool.submit(reading.delete)
            if writes == "a second later":
                outcome.result()
            while not store.late_path_for("r").exists():
                time.sleep(0.001)
            foreign.stdin.write("\n")
            foreign.stdin.flush()
            assert foreign.stdout.readline() == "written\n"
            assert outcome.result() == "grew while it was being deleted"
    again = _core.CaptureReading([tmp_path], "r")
    assert [json.loads(line)["model_call_id"] for line in again.data.splitlines()] == ["a", "late"]
    assert again.delete() == "has a late file beside it"


def test_a_reader_that_has_the_file_open_is_no_writer(tmp_path):
    store = CaptureStore(tmp_path)
    store.record("r", {"model_call_id": "a"})
    with store.path_for("r").open("rb"):
        assert _core.CaptureReading([tmp_path], "r").delete() == "deleted"
    assert not store.late_path_for("r").exists()


@pytest.mark.parametrize("kind", ["jsonl", "late.jsonl", "incomplete"])
def test_a_fifo_under_a_captures_name_is_removed_and_not_waited_for(store, kind):
    store.root.mkdir(exist_ok=True)
    os.mkfifo(store.root / f"3-1.capture.{kind}")
    assert store.clear("3-1") == 1
    assert list(store.root.iterdir()) == []


def test_what_is_no_file_of_its_own_is_named_when_it_cannot_be_written(store):
    store.root.mkdir(exist_ok=True)
    path = store.path_for("3-1")
    path.symlink_to("/dev/null")
    with pytest.raises(CaptureError, match=f"{path}: not a regular file"):
        store.record("3-1", {"model_call_id": "a"})
    assert store.is_incomplete("3-1")


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_one_directory_may_be_given_alone(store, kind):
    store.record("3-1", {"model_call_id": "a"})
    row = {"_ng_task_index": 3, "_ng_rollout_index": 1}
    assert clear_model_call_captures_for_rollouts([row], kind(store.root)) == 1
    assert list(store.root.iterdir()) == []
