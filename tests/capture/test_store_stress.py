"""Writers and readers that meet, die, and find no lock."""

import collections
import json
import random
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from rollfold import _core
from rollfold.capture import CaptureStore


def script(text, *arguments, **options):
    """Start a Python program of its own; its lines go through a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def ids_of(data):
    """Give the call ids of good lines, and how many lines are none."""
    good, bad = [], 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            good.append(json.loads(line)["model_call_id"])
        except ValueError:
            bad += 1
    return good, bad


WRITERS = """
    import sys, threading, random
    from rollfold.capture import CaptureStore
    root, name, threads, each, rollouts = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    store = CaptureStore(root, durability="none")

    def write(thread):
        chance = random.Random(f"{name}{thread}")
        for number in range(each):
            body = {"pad": "x" * chance.randrange(400)}
            exchange = {"model_call_id": f"{name}-{thread}-{number}", "request": body}
            store.record(f"r{chance.randrange(rollouts)}", exchange)

    running = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
"""


def exactly_once(root, records, rollouts):
    """Write from two processes while two readers take what they can."""
    threads = 8
    each = records // (2 * threads)
    writers = [script(WRITERS, root, name, threads, each, rollouts) for name in "ab"]
    taken, kept = [], collections.Counter()
    done = threading.Event()

    def take(seed):
        chance = random.Random(seed)
        while not done.is_set():
            reading = _core.CaptureReading([root], f"r{chance.randrange(rollouts)}")
            assert not reading.lock_unavailable
            if not reading.found:
                continue
            outcome = reading.delete()
            kept[outcome] += 1
            if outcome == "deleted":
                good, bad = ids_of(reading.data)
                assert bad == 0
                taken.extend(good)

    readers = [threading.Thread(target=take, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    for writer in writers:
        assert writer.wait(250) == 0
        writer.stdout.close()
    done.set()
    for reader in readers:
        reader.join()
    left = []
    for number in range(rollouts):
        reading = _core.CaptureReading([root], f"r{number}")
        good, bad = ids_of(reading.data)
        assert bad == 0
        assert not reading.incomplete
        left.extend(good)
    found = collections.Counter(taken + left)
    expected = {f"{n}-{t}-{i}" for n in "ab" for t in range(threads) for i in range(each)}
    assert set(found) == expected
    assert set(found.values()) == {1}
    assert kept["deleted"] > 10, "the readers took nothing: the test tests nothing"


def test_every_record_is_in_exactly_one_place(tmp_path):
    exactly_once(tmp_path, 10_000, 50)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_record_is_in_exactly_one_place_for_long(tmp_path):
    for number in range(10):
        exactly_once(tmp_path / str(number), 50_000, 20)


MORTAL = """
    import os, random, signal, sys, time
    from rollfold.capture import CaptureStore
    root, times = sys.argv[1], int(sys.argv[2])
    chance = random.Random(7)
    acknowledged = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for generation in range(times):
        child = os.fork()
        if child == 0:
            store = CaptureStore(root, durability="none")
            for number in range(1_000_000):
                name = f"{generation}-{number}"
                store.record("r", {"model_call_id": name, "request": {"p": "x" * 150_000}})
                os.write(acknowledged, (name + chr(10)).encode())
        time.sleep(chance.uniform(0.001, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if generation % 20 == 19:
            # What a crash of the machine leaves, which a kill alone does not.
            path = CaptureStore(root).path_for("r")
            if path.exists():
                os.truncate(path, path.stat().st_size - chance.randrange(2, 1000))
    print("done")
"""


def test_killed_at_any_point_two_hundred_times(tmp_path):
    acknowledged = tmp_path / "acknowledged"
    writer = script(MORTAL, tmp_path, 200, acknowledged)
    reader_saw = 0
    while writer.poll() is None:
        time.sleep(0.02)
        good, _ = ids_of(_core.CaptureReading([tmp_path], "r").data[:2_000_000])
        reader_saw = max(reader_saw, len(good))
    assert writer.stdout.read() == "done\n"
    writer.stdout.close()
    good, bad = ids_of(_core.CaptureReading([tmp_path], "r").data)
    said = set(acknowledged.read_text().split())
    # Ten were cut on purpose; a kill inside a write cuts one more each at most.
    lost = said - set(good)
    assert len(lost) <= 10
    assert len(set(good)) == len(good)
    assert bad <= 210
    assert len(good) > 50, "killed before it wrote: the test tests nothing"
    assert reader_saw > 0


def test_a_lock_held_for_ever(tmp_path):
    store = CaptureStore(tmp_path)
    store.record("r", {"model_call_id": "a"})
    writer = _core.CaptureWriter(tmp_path, lock_wait_s=0.2)
    with script(
        """
        import fcntl, sys
        held = open(sys.argv[1])
        fcntl.flock(held, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
        """,
        store.path_for("r"),
        stdin=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        assert writer.append("r", b'{"model_call_id": "b"}') == "timed_out"
        reading = _core.CaptureReading([tmp_path], "r", lock_wait_s=0.1)
        assert reading.lock_unavailable
        assert reading.incomplete
        assert ids_of(reading.data) == (["a", "b"], 0)
        assert reading.delete(lock_wait_s=0.1) == "lock unavailable"
        holder.stdin.close()
    reading = _core.CaptureReading([tmp_path], "r")
    assert not reading.lock_unavailable
    assert ids_of(reading.data) == (["a", "b"], 0)


# A seccomp filter that answers ENOLCK to flock and to F_OFD_SETLK, as a file system
# without locks does; shims for the C library would miss direct system calls.
NO_LOCKS = """
    import ctypes, errno, platform, struct
    machine = platform.machine()
    FLOCK, FCNTL = {"x86_64": (73, 72), "aarch64": (32, 25)}[machine]
    ERRNO, ALLOW = 0x00050000 | errno.ENOLCK, 0x7FFF0000
    LD, JEQ, RET = 0x20, 0x15, 0x06
    program = [
        (LD, 0, 0, 0),
        (JEQ, 4, 0, FLOCK),
        (JEQ, 0, 2, FCNTL),
        (LD, 0, 0, 24),
        (JEQ, 1, 0, 37),
        (RET, 0, 0, ALLOW),
        (RET, 0, 0, ERRNO),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) == 0
    import fcntl, os, tempfile
    with tempfile.TemporaryFile() as probe:
        try:
            fcntl.flock(probe, fcntl.LOCK_EX)
        except OSError as error:
            assert error.errno == errno.ENOLCK
        else:
            raise SystemExit("the filter does nothing")
"""


def test_a_file_system_without_locks(tmp_path):
    program = textwrap.dedent(NO_LOCKS) + textwrap.dedent("""
        import sys, logging
        logging.basicConfig(stream=sys.stdout, format="WARNED%(message).0s")
        from rollfold import _core
        from rollfold.capture import Recorder
        recorder = Recorder(sys.argv[1])
        for number in range(3):
            call = recorder.begin("r", "chat")
            call.request(b"{}")
            call.start(200, "application/json")
            call.response(b"{}")
            call.finish_here()
        reading = _core.CaptureReading([sys.argv[1]], "r")
        print(reading.lock_unavailable, reading.data.count(b"\\n"), reading.incomplete)
        print(reading.delete())
        print(dict(recorder.counts))
        from rollfold import enrich_run_result
        result = enrich_run_result(
            {"_ng_rollout_id": "r"}, {}, capture_dirs=[sys.argv[1]],
            observability_enabled=True, delete_capture=True,
        )["ng_model_call_capture"]
        print(len(result["calls"]), result["gaps"])
        """)
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    (
        warned_of_announcing,
        warned_of_locks,
        reading,
        deletion,
        counts,
        kept,
        record,
    ) = done.stdout.splitlines()
    assert warned_of_announcing == warned_of_locks == "WARNED"
    assert reading == "True 3 False"
    assert deletion == "lock unavailable"
    assert "'recorded': 3" in counts
    assert kept == "WARNED"
    assert record == "3 [{'code': 'model_call_capture_lock_unavailable'}]"


def test_a_reader_that_waits_follows_the_file(tmp_path):
    """A file that is taken while a reader waits for it is read no more."""
    store = CaptureStore(tmp_path, durability="none")
    for _ in range(50):
        store.record("r", {"model_call_id": "a"})
        outcomes = []

        def take(found=outcomes):
            reading = _core.CaptureReading([tmp_path], "r")
            if reading.found and reading.delete() == "deleted":
                found.extend(ids_of(reading.data)[0])

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) <= 1
        store.clear("r")


def test_no_descriptor_is_left_open(tmp_path):
    store = CaptureStore(tmp_path, durability="none")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(300):
        store.record(f"r{number}", {})
        _core.CaptureReading([tmp_path], f"r{number}").delete()
        _core.in_flight([tmp_path], "x")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
