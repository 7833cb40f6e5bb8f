"""Readers and writers at once: nothing lost, nothing half-read."""

import copy
import subprocess
import sys
import threading

from rollfold import dumps, enrich_run_result
from rollfold.capture import CaptureStore
from tests.rollouts import ROLLOUT_ID, ROW, capture_gaps, chat, enrich, ids_of, result_of, turns_of

CALLS = [f"call-{number:03d}" for number in range(60)]

WRITER = """
import json, sys
from rollfold.capture import CaptureStore
store = CaptureStore(sys.argv[1])
for text in sys.stdin:
    store.record(sys.argv[2], json.loads(text))
"""


def test_two_threads_enrich_while_a_writer_appends(tmp_path):
    store = CaptureStore(tmp_path)
    store.record(ROLLOUT_ID, chat(CALLS[0]))
    failures = []
    seen = [0, 0]
    done = threading.Event()

    def read(which):
        while True:
            last = done.is_set()
            result = enrich(tmp_path, result_of(*CALLS))
            got = ids_of(result)
            problems = [gap for gap in capture_gaps(result) if "unreadable" in gap[0]]
            prefix = [(name, index) for index, name in enumerate(CALLS[: len(got)])]
            if problems or got != prefix or len(got) < seen[which]:
                failures.append((problems, got))
            seen[which] = len(got)
            if last or failures:
                return

    readers = [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
    for reader in readers:
        reader.start()
    for name in CALLS[1:]:
        store.record(ROLLOUT_ID, chat(name))
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert seen == [len(CALLS)] * 2


def test_processes_append_at_once(tmp_path):
    lines = {
        name: "\n".join(dumps(chat(f"{name}-{number}")).decode() for number in range(25)) + "\n"
        for name in "abc"
    }
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), ROLLOUT_ID],
            stdin=subprocess.PIPE,
            text=True,
        )
        for _ in lines
    ]
    for writer, text in zip(writers, lines.values(), strict=True):
        writer.stdin.write(text)
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    result = enrich(tmp_path)
    got = [name for name, _ in ids_of(result)]
    assert sorted(got) == sorted(f"{name}-{n}" for name in lines for n in range(25))
    assert capture_gaps(result) == []
    for name in lines:
        assert [one for one in got if one.startswith(name)] == [f"{name}-{n}" for n in range(25)]


def test_many_threads_enrich_one_capture_to_the_same_bytes(tmp_path):
    store = CaptureStore(tmp_path)
    for name in CALLS[:10]:
        store.record(ROLLOUT_ID, chat(name))
    outcomes = []

    def read():
        outcomes.append(dumps(enrich(tmp_path, result_of(*CALLS[:10]))))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6
    assert len(set(outcomes)) == 1


def test_the_original_may_change_while_its_shallow_copy_is_enriched(tmp_path):
    """A trainer pops token arrays out of `response` while the copy is enriched."""
    store = CaptureStore(tmp_path)
    for name in CALLS[:20]:
        store.record(ROLLOUT_ID, chat(name))
    tokens = [{"generation_token_ids": list(range(2000))} for _ in range(50)]
    original = result_of(*CALLS[:20])
    original["response"] = {"output": tokens}
    shallow = dict(original)
    failures = []

    def work():
        try:
            enrich_run_result(
                dict(ROW), shallow, capture_dirs=[tmp_path], observability_enabled=True
            )
        except BaseException as error:  # noqa: BLE001 -- the test reports whatever it was
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for item in original["response"]["output"]:
        item.pop("generation_token_ids")
    thread.join()
    assert failures == []
    assert len(turns_of(shallow)) == 20
    assert "ng_trajectory" not in original
    assert original["response"] == {"output": [{} for _ in tokens]}


def test_a_deep_copy_owns_what_a_record_shares(tmp_path):
    store = CaptureStore(tmp_path)
    history = {"messages": [{"role": "user", "content": "q"}]}
    for name in CALLS[:2]:
        store.record(ROLLOUT_ID, chat(name, request=history))
    result = enrich(tmp_path, result_of(*CALLS[:2]))
    mine = copy.deepcopy(result)
    mine["ng_trajectory"]["turns"][0]["question"][0]["content"] = "changed"
    assert [turn["question"][0]["content"] for turn in turns_of(result)] == ["q", "q"]
