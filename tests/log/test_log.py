"""RolloutLog: what goes in comes out, in every form, from threads and processes."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollfold import _core, identity
from rollfold.errors import (
    RecordFormatError,
    RolloutIdError,
    RolloutLogError,
    RolloutLogLockedError,
)
from rollfold.log import LogIndex, RolloutLog, RolloutLogWarning, merge_logs, read_log
from rollfold.packed import pack

LONG = "a text of more than thirty-two bytes, so that it pays to share it"
FORMS = [(form, name) for form in ("packed", "full") for name in ("a.jsonl", "a.jsonl.zst", "dir")]


needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd command")


def record(number, **more):
    messages = [{"role": "user", "content": f"{n} {LONG}"} for n in range(number % 7)]
    return {
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
        "reward": number / 8,
        "calls": [messages[:n] for n in range(len(messages))],
        "big": 10**40 + number,
        "é\u2028": {"$p": [number]},
        **more,
    }


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_records_come_back_in_order(tmp_path, form, name):
    records = [record(n) for n in range(30)]
    with RolloutLog(tmp_path / name, form) as log:
        log.append(records[0])
        log.append(_core.dumps(records[1]))
        log.append(pack(records[2]))
        log.append(json.dumps(records[3], indent=1).encode() + b"\n")
        assert log.append_many(records[4:20]) == 16
        for one in records[20:]:
            log.append(one)
        assert list(log) == records
        assert log.get("17-0") == records[17]
        assert log.get("99-0") is None
        assert log.ids() == [f"{n}-0" for n in range(30)]
    assert list(read_log(tmp_path / name)) == records
    lines = list(read_log(tmp_path / name, form="line"))
    assert {line.startswith(b'{"rollfold_packed":1,') for line in lines} == {form == "packed"}
    full = list(read_log(tmp_path / name, form="full"))
    assert [json.loads(line) for line in full] == records
    assert full[0] == _core.dumps(records[0])


@needs_zstd
def test_a_compressed_file_is_plain_zstd(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    with RolloutLog(path, "full") as log:
        log.append_many([record(n) for n in range(50)])
        log.append(record(50))
    text = subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout
    assert [json.loads(line) for line in text.splitlines()] == [record(n) for n in range(51)]


@needs_zstd
@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_frames_of_other_writers_may_cut_lines(tmp_path, pieces):
    records = [record(n) for n in range(20)]
    text = b"".join(_core.dumps(one) + b"\n" for one in records)
    size = -(-len(text) // pieces)
    path = tmp_path / "a.jsonl.zst"
    with path.open("wb") as file:
        for at in range(0, len(text), size):
            piece = text[at : at + size]
            done = subprocess.run(["zstd", "-c"], input=piece, check=True, capture_output=True)
            file.write(done.stdout)
    assert list(read_log(path)) == records
    with RolloutLog(path) as log:
        for n in range(20):
            assert log.get(f"{n}-0") == records[n]
        log.append(record(20))
        assert log.get("20-0") == record(20)
    assert list(read_log(path)) == [*records, record(20)]


def test_the_last_record_of_an_id_counts_but_no_unstarted_one_hides_an_executed_one(tmp_path):
    unstarted = record(1, _ng_omitted_rollout="never_started")
    with RolloutLog(tmp_path / "log") as log:
        log.append_many([record(1, n=1), record(1, n=2), unstarted])
        assert log.get("1-0")["n"] == 2
        log.append(record(2, _ng_dispatch_drained=True))
        assert log.get("2-0")["_ng_dispatch_drained"] is True
        log.append(record(2, n=3))
        assert log.get("2-0")["n"] == 3
        log.append(record(1, _ng_attempt_index=2))
        assert log.get("1-0-a2")["_ng_attempt_index"] == 2
        log.append({"no": "identity"})
        assert len(list(log)) == 7
        assert log.ids() == ["1-0", "2-0", "1-0-a2"]


IDENTITY_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["03", "0", "", "a.b-c_d", "-x", "é", "x" * 201, "x" * 190, "٣", LONG])
    | st.text(max_size=3)
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["_ng_rollout_id", "_ng_task_index", "_ng_rollout_index", "_ng_attempt_index", "_x"]
        ),
        IDENTITY_VALUES,
    ),
    st.booleans(),
)
def test_the_index_knows_ids_as_the_contract_does(row, repeated):
    try:
        expected = identity.rollout_id(row)
    except RolloutIdError:
        expected = None
    if repeated:
        row["copy"] = list(row.values())
    assert _core.log_record_key(_core.dumps(row)) == (expected, False)
    assert _core.log_record_key(pack(row)) == (expected, False)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"NaN", b'{"a":NaN}', b"{} {}", b'"x"'])
@pytest.mark.parametrize("form", ["packed", "full"])
def test_what_is_no_record_costs_itself_only(tmp_path, text, form):
    with RolloutLog(tmp_path / "a.jsonl", form) as log:
        with pytest.raises(RecordFormatError) as caught:
            log.append(text)
        assert "\n" not in str(caught.value)
        with pytest.raises(RecordFormatError, match="record 1: "):
            log.append_many([record(1), text, record(2)])
        with pytest.raises(TypeError):
            log.append({"a": object()})
        assert list(log) == [record(1), record(2)]


def test_a_malformed_packed_record_is_refused(tmp_path):
    with RolloutLog(tmp_path / "a.jsonl") as log:
        for text in (
            b'{"rollfold_packed":1,"parts":[],"record":{"$p":0}}',
            b'{"rollfold_packed":1,"parts":[],"record":[1]}',
            b'{"rollfold_packed":2,"parts":[],"record":{}}',
        ):
            with pytest.raises(RecordFormatError):
                log.append(text)
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_trusted_text_goes_through_as_it_is(tmp_path):
    with RolloutLog(tmp_path / "a.jsonl", "full") as log:
        log.append(b'{"a": 1,\n"b": 2}', rollout_id="x.y")
        assert log.get("x.y") is None  # the record itself does not say so
        log.append(b'{"_ng_rollout_id":"x.y"}', rollout_id="x.y")
        assert log.get("x.y") == {"_ng_rollout_id": "x.y"}
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"a": 1, "b": 2}\n{"_ng_rollout_id":"x.y"}\n'


def test_rotation_by_size(tmp_path):
    with RolloutLog(tmp_path / "log", "full", None, rotate_bytes=2000) as log:
        for n in range(40):
            log.append(record(n))
    files = log.files
    assert len(files) > 3
    assert [file.name for file in files[:2]] == ["rollouts-000001.jsonl", "rollouts-000002.jsonl"]
    assert all(2000 <= file.stat().st_size < 4000 for file in files[:-1])
    assert list(read_log(tmp_path / "log")) == [record(n) for n in range(40)]
    with RolloutLog(tmp_path / "log", "full", None, rotate_bytes=2000) as log:
        log.append(record(40))
        assert log.get("40-0") == record(40)
        assert log.get("3-0") == record(3)
    assert list(read_log(tmp_path / "log")) == [record(n) for n in range(41)]


def test_rotation_by_step(tmp_path):
    with RolloutLog(tmp_path / "log", rotate_steps=10) as log:
        with pytest.raises(ValueError, match="step"):
            log.append(record(0))
        for n in range(35):
            log.append(record(n), step=n)
    # Another run goes on with the step it stopped in.
    with RolloutLog(tmp_path / "log", rotate_steps=10) as log:
        log.append(record(35), step=35)
        log.append(record(36), step=40)
    assert [file.name for file in log.files] == [
        f"rollouts-{n + 1:06d}-step{n * 10}.jsonl.zst" for n in range(5)
    ]
    assert list(log) == [record(n) for n in range(37)]
    assert [one["_ng_task_index"] for one in read_log(log.files[3])] == [30, 31, 32, 33, 34, 35]


def test_shards_and_merge(tmp_path):
    logs = [RolloutLog(tmp_path / "log", shard=f"rank{n}") for n in range(3)]
    for n in range(30):
        logs[n % 3].append(record(n))
    for log in logs:
        log.close()
    assert [file.name for file in log.files] == [f"rank{n}-000001.jsonl.zst" for n in range(3)]
    again = tmp_path / "again.jsonl"
    with RolloutLog(again, "full") as log:
        log.append(record(4, later=True))
        log.append(record(5, _ng_omitted_rollout="never_started"))
    merged = tmp_path / "merged.jsonl.zst"
    assert merge_logs([tmp_path / "log", again], merged) == 32
    assert list(read_log(merged)) == [*read_log(tmp_path / "log"), *read_log(again)]
    with pytest.raises(FileExistsError):
        merge_logs([again], merged)
    latest = tmp_path / "latest.jsonl"
    assert merge_logs([tmp_path / "log", again], latest, form="full", latest=True) == 30
    by_task = {one["_ng_task_index"]: one for one in read_log(latest)}
    assert len(by_task) == 30
    assert by_task[4]["later"] is True
    assert "_ng_omitted_rollout" not in by_task[5]
    assert not list(tmp_path.glob(".*"))
    with RolloutLog(merged) as log:
        assert log.get("7-0") == record(7)
        log.append(record(99))
    with pytest.raises(ValueError, match="does not end in"):
        merge_logs([again], tmp_path / "x.txt")


def test_threads_share_a_log(tmp_path):
    with RolloutLog(tmp_path / "log", rotate_bytes=3000) as log:

        def work(first):
            for n in range(first, first + 40):
                log.append(record(n) if n % 2 else _core.dumps(record(n)))

        threads = [threading.Thread(target=work, args=(n * 40,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one["_ng_task_index"] for one in log) == list(range(240))
        for n in (0, 17, 239):
            assert log.get(f"{n}-0") == record(n)


def test_a_single_file_has_one_writer(tmp_path):
    path = tmp_path / "a.jsonl"
    with RolloutLog(path) as log:
        log.append(record(1))
        with pytest.raises(RolloutLogLockedError, match=r"a\.jsonl"):
            RolloutLog(path)
        code = (
            "import sys; from rollfold.log import RolloutLog; from rollfold.errors import *\n"
            "try: RolloutLog(sys.argv[1])\n"
            "except RolloutLogLockedError as e: sys.exit(7)\n"
        )
        assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 7
        # Readers need no permission.
        assert list(read_log(path)) == [record(1)]
    with RolloutLog(path) as log:
        log.append(record(2))
    assert list(read_log(path)) == [record(1), record(2)]


WRITER = """
import sys
from rollfold.log import RolloutLog
from tests.log.test_log import record
with RolloutLog(sys.argv[1], rotate_bytes=4000) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[2]), int(sys.argv[2]) + 60):
        log.append(record(n))
"""


def test_processes_share_a_directory(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / "log", str(n * 60)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for n in range(3)
    ]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers:
        writer.stdin.write(b"\n")
        writer.stdin.close()
    for writer in writers:
        assert writer.wait(60) == 0
        writer.stdout.close()
    log = list(read_log(tmp_path / "log"))
    assert sorted(one["_ng_task_index"] for one in log) == list(range(180))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "log"])
def test_an_index_reads_beside_a_writer(tmp_path, name):
    with RolloutLog(tmp_path / name) as log:
        log.append(record(0))
        index = LogIndex(tmp_path / name)
        for n in range(1, 5):
            assert index.get(f"{n}-0") is None
            log.append(record(n))
            assert index.get(f"{n}-0") == record(n)
        assert index.ids() == [f"{n}-0" for n in range(5)]
        assert len(index.entries()) == 5
    (file,) = log.files
    file.unlink()
    if name != "log":
        with pytest.raises(RolloutLogError, match=name):
            index.get("1-0")
    else:
        assert index.get("1-0") is None


def child_appends(log, results):
    try:
        log.append(record(1))
        results.put("ok")
    except RolloutLogLockedError:
        results.put("locked")


@pytest.mark.parametrize(("name", "outcome"), [("log", "ok"), ("a.jsonl", "locked")])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_to_a_file_of_its_own(tmp_path, name, outcome):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with RolloutLog(tmp_path / name) as log:
        log.append(record(0))
        with log._lock:  # as if another thread were appending
            child = context.Process(target=child_appends, args=(log, results))
            child.start()
        assert results.get(timeout=30) == outcome
        child.join(30)
        log.append(record(2))
    tasks = sorted(one["_ng_task_index"] for one in read_log(tmp_path / name))
    assert tasks == ([0, 1, 2] if outcome == "ok" else [0, 2])
    # The child's end unlocked nothing, and no lock is left.
    RolloutLog(tmp_path / name).close()


def test_a_closed_log_takes_nothing(tmp_path):
    log = RolloutLog(tmp_path / "a.jsonl", fsync="append")
    log.append(record(0))
    log.flush()
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append(record(1))


@pytest.mark.parametrize(
    "arguments",
    [
        {"form": "short"},
        {"compression": "gzip"},
        {"compression": "zstd"},
        {"rotate_bytes": 10},
        {"rotate_steps": 10},
        {"fsync": "sometimes"},
        {"shard": "../x"},
    ],
)
def test_arguments_are_checked(tmp_path, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        RolloutLog(tmp_path / "a.jsonl", **arguments)
    assert not list(tmp_path.iterdir())


def test_errors_name_the_file(tmp_path):
    with pytest.raises(RolloutLogError, match=r"missing\.jsonl"):
        list(read_log(tmp_path / "missing.jsonl"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(RolloutLogError, match="file"):
        RolloutLog(tmp_path / "file")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(RolloutLogError, match=r"b\.jsonl"):
            RolloutLog(tmp_path / "b.jsonl")


def test_captures_beside_the_log_are_no_records(tmp_path):
    (tmp_path / "0-0.capture.jsonl").write_text('{"model_call_id":"x"}\n')
    with RolloutLog(tmp_path) as log:
        log.append(record(0))
    assert list(read_log(tmp_path)) == [record(0)]


def test_a_full_disk_leaves_no_half_record(tmp_path):
    code = """
import resource, signal, sys
from rollfold.log import RolloutLog
from rollfold.errors import RolloutLogError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = RolloutLog(sys.argv[1], "full")
log.append({"_ng_rollout_id": "a"})
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    log.append({"_ng_rollout_id": "b", "text": "x" * 5000})
except RolloutLogError as error:
    assert "a.jsonl" in str(error), error
else:
    sys.exit("no error")
log.append({"_ng_rollout_id": "c"})
assert [one["_ng_rollout_id"] for one in log] == ["a", "c"]
"""
    path = tmp_path / "a.jsonl"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert [one["_ng_rollout_id"] for one in read_log(path)] == ["a", "c"]


def test_a_warning_can_be_had_as_a_call(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":\n{"a":2}\n')
    with pytest.warns(RolloutLogWarning, match=r"a\.jsonl: unreadable at byte 8 \(6 bytes\)"):
        assert list(read_log(path)) == [{"a": 1}, {"a": 2}]
    told = []
    assert len(list(read_log(path, on_damage=lambda *damage: told.append(damage)))) == 2
    assert [damage[:3] for damage in told] == [(path, 8, 6)]
