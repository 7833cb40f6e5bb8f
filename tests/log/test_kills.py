"""What a log has been through: kills at any byte, damage, a lost index."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollfold.log import LogIndex, RolloutLog, RolloutLogWarning, read_log
from tests.log.test_log import record

NAMES = ["a.jsonl", "a.jsonl.zst"]
NEXT = {"_ng_rollout_id": "next"}


def small_log(path, count=6):
    """Write a small log; give the file's size after each append."""
    sizes = [0]
    with RolloutLog(path, fsync="never") as log:
        for number in range(count):
            log.append({"_ng_task_index": number, "_ng_rollout_index": 0, "t": "é" * number})
            sizes.append(path.stat().st_size)
    return sizes


def tasks(path, **options):
    return [one.get("_ng_task_index") for one in read_log(path, **options)]


def index_file(path):
    return Path(f"{path}.index")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_kill_at_every_byte_costs_the_last_append_alone(tmp_path, name, index):
    whole = tmp_path / name
    sizes = small_log(whole, 3)
    data = whole.read_bytes()
    for cut in range(len(data) + 1):
        path = tmp_path / "cut" / name
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        path.write_bytes(data[:cut])
        if index == "kept":
            # The index may even be ahead of what reached the disk.
            shutil.copy(index_file(whole), index_file(path))
        safe = sum(size <= cut for size in sizes[1:])
        torn = cut - sizes[safe]
        # In plain lines a record is whole before its newline.
        if name == "a.jsonl" and cut + 1 in sizes:
            safe, torn = safe + 1, 0
        told = []
        expected = list(range(safe))
        assert tasks(path, on_damage=lambda *damage, told=told: told.append(damage)) == expected
        assert [damage[1:3] for damage in told] == ([(sizes[safe], torn)] if torn else [])
        with RolloutLog(path, fsync="never") as log:
            log.append(NEXT)
            assert log.get("next") == NEXT
            assert log.ids() == [f"{number}-0" for number in expected] + ["next"]
        assert tasks(path) == [*expected, None]
        left = Path(f"{path}.torn")
        assert (left.read_bytes() if torn else b"\n") == data[
            sizes[safe] : cut * bool(torn)
        ] + b"\n"


@pytest.mark.parametrize("name", NAMES)
def test_padding_of_a_crash_is_moved_aside(tmp_path, name):
    path = tmp_path / name
    small_log(path)
    with path.open("ab") as file:
        file.write(b"\0" * 4096)
    with pytest.warns(RolloutLogWarning, match="unreadable at byte"):
        assert tasks(path) == list(range(6))
    with RolloutLog(path, fsync="never") as log:
        log.append(NEXT)
    assert tasks(path) == [*range(6), None]
    assert Path(f"{path}.torn").read_bytes() == b"\0" * 4096 + b"\n"


@pytest.mark.parametrize("name", NAMES)
def test_damage_of_any_byte_costs_one_record_and_is_told_once(tmp_path, name):
    path = tmp_path / name
    sizes = small_log(path, 3)
    data = path.read_bytes()
    index_file(path).unlink()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0xA5
        path.write_bytes(damaged)
        told = []
        found = tasks(path, on_damage=lambda *damage, told=told: told.append(damage))
        hit = next(number for number, size in enumerate(sizes[1:]) if at < size)
        lost = {hit}
        if name == "a.jsonl" and at == sizes[hit + 1] - 1:
            lost.add(hit + 1)  # the newline between two
        if told:
            assert len(told) == 1
            assert told[0][1] == sizes[hit]
            assert set(range(3)) - lost <= set(found)
            assert not (lost - {3}) & set(found)
        else:
            # In plain lines a byte may change into another that is no less JSON.
            assert name == "a.jsonl"
            assert set(range(3)) - lost <= set(found)
        with RolloutLog(path, fsync="never") as log:
            log.append(NEXT)
            assert log.get("next") == NEXT
        index_file(path).unlink()


@pytest.mark.parametrize("name", NAMES)
def test_a_hole_in_the_middle_is_told_once_and_the_rest_is_read(tmp_path, name):
    path = tmp_path / name
    sizes = small_log(path, 20)
    data = bytearray(path.read_bytes())
    data[sizes[5] + 3 : sizes[9] - 3] = random.Random(1).randbytes(sizes[9] - sizes[5] - 6)
    path.write_bytes(data)
    told = []
    found = tasks(path, on_damage=lambda *damage: told.append(damage))
    assert found == [*range(5), *range(9, 20)]
    assert {damage[0] for damage in told} == {path}
    assert told[0][1] == sizes[5]
    assert sum(damage[2] for damage in told) == sizes[9] - sizes[5]
    if name == "a.jsonl.zst":
        assert len(told) == 1
    with RolloutLog(path, fsync="never") as log:
        log.append(NEXT)
        assert log.get("next") == NEXT
        assert log.get("15-0")["_ng_task_index"] == 15
        assert log.get("7-0") is None


@pytest.mark.parametrize("name", [*NAMES, "log"])
def test_an_index_is_rebuilt_when_missing_stale_or_torn(tmp_path, name):
    root = tmp_path / name
    with RolloutLog(root, fsync="never") as log:
        log.append_many([record(n) for n in range(10)])
        log.append_many([record(n) for n in range(10, 20)])
        (path,) = log.files
    index = index_file(path)
    good = index.read_bytes()
    other = tmp_path / "other" / path.name
    with RolloutLog(other) as log:
        log.append_many([record(n) for n in range(100, 140)])
    stale = index_file(other).read_bytes()
    moved = good.replace(b'"3-0"', b'"4-9"')
    damaged = [None, b"", b"\0" * 50, stale, good[: len(good) // 2], b"[0,1]\n" + good, moved]
    damaged += [good[:cut] for cut in range(0, len(good), 17)]
    for bad in damaged:
        index.unlink()
        if bad is not None:
            index.write_bytes(bad)
        # Once with what is there, and once more with what was made of it.
        for _ in range(2):
            for number in (0, 3, 19):
                with RolloutLog(root, fsync="never") as log:
                    assert log.get(f"{number}-0") == record(number)
        assert index.read_bytes() == good
    index.unlink()
    index.mkdir()  # even where none can be written
    assert RolloutLog(root).get("3-0") == record(3)


def test_a_replaced_file_does_not_keep_its_index(tmp_path):
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file, first in ((path, 0), (other, 10)):
        with RolloutLog(file) as log:
            log.append_many([record(first + n) for n in range(10)])
    other.replace(path)
    with RolloutLog(path, fsync="never") as log:
        assert log.get("11-0") == record(11)
        assert log.get("1-0") is None
        log.append(record(50))
    assert [entry.rollout_id for entry in LogIndex(path).entries()][-2:] == ["19-0", "50-0"]


APPENDER = """
import sys
from rollfold.log import RolloutLog
log = RolloutLog(sys.argv[1], sys.argv[2])
start = int(sys.argv[3])
for number in range(start, start + 100_000):
    record = {"_ng_task_index": number, "_ng_rollout_index": 0, "text": str(number) * 3000}
    if number % 5:
        log.append(record)
    else:
        log.append_many([record])
    print(number, flush=True)
"""


@pytest.mark.parametrize("form", ["packed", "full"])
@pytest.mark.parametrize("name", [*NAMES, "log"])
def test_a_killed_process_loses_nothing_that_was_appended(tmp_path, name, form):
    path = tmp_path / name
    done = []
    start = 0
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDER, path, form, str(start)], stdout=subprocess.PIPE
        )
        first = process.stdout.readline()
        time.sleep(random.Random(turn).uniform(0.005, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
        process.wait()
        process.stdout.close()
        appended = [int(line) for line in (first + rest).split(b"\n")[:-1]]
        done += appended
        start = appended[-1] + 1000
    with RolloutLog(path, form) as log:
        log.append(NEXT)
        found = [one.get("_ng_task_index") for one in log]
        assert found[-1] is None
        # The last of each turn may be there without having been said.
        assert set(done) <= set(found)
        assert len(found) - 1 - len(done) <= 4
        assert found[:-1] == sorted(found[:-1])
        assert log.get(f"{done[-1]}-0")["text"] == str(done[-1]) * 3000


def test_a_reader_beside_a_writer_is_not_told_of_its_tail(tmp_path):
    path = tmp_path / "a.jsonl"
    with RolloutLog(path, fsync="never") as log:
        log.append(record(0))
        with path.open("ab") as file:
            file.write(b'{"half')
            file.flush()
            assert list(read_log(path)) == [record(0)]  # warnings are errors here
            file.truncate(path.stat().st_size - 6)
        log.append(record(1))
    assert list(read_log(path)) == [record(0), record(1)]
