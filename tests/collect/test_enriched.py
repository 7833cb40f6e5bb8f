"""Collecting and enriching with real captures, and the demo from end to end."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rollfold import CaptureStore, RolloutLog, latest_executed, pack, read_log
from rollfold.collect import CollectOptions, collect_async
from rollfold.collect.offline import EnrichOptions, enrich_file
from rollfold.collect.plan import InputError
from tests.dispatch.conftest import Agent, serving

HOME = Path(__file__).parents[2]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def exchange(name, **fields):
    return {
        "model_call_id": name,
        "dialect": "chat",
        "status_code": 200,
        "started_at": 1.0,
        "request": {"messages": [{"role": "user", "content": "q"}]},
        "response": {
            "id": f"r-{name}",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        },
        **fields,
    }


class Recording(Agent):
    """Leaves a call in the captures before it does what the row says."""

    def __init__(self, captures):
        super().__init__()
        self.store = CaptureStore(captures, durability="none")

    async def answer(self, request, row):
        attempt = row.get("_ng_attempt_index")
        rollout = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        rollout += f"-a{attempt}" if attempt else ""
        self.store.record(rollout, exchange(f"call-{rollout}"))
        return await super().answer(request, row)


@pytest.fixture
async def collection(tmp_path):
    captures = tmp_path / "captures"
    async with serving(Recording(captures)) as agent:

        async def run(rows, **options):
            source = tmp_path / "tasks.jsonl"
            source.write_text("".join(json.dumps(row) + "\n" for row in rows))
            return await collect_async(
                CollectOptions(
                    input=source,
                    output=tmp_path / "out.jsonl",
                    agents={"a": agent.url},
                    captures=[captures],
                    **options,
                )
            )

        run.output, run.failures = tmp_path / "out.jsonl", tmp_path / "out_failures.jsonl"
        run.captures, run.agent = captures, agent
        yield run


def call_ids(record):
    return [call["model_call_id"] for call in record["ng_model_call_capture"]["calls"]]


async def test_every_record_has_its_calls(collection):
    rows = [{"n": n} for n in range(6)]
    rows[2].update(do="status", status=500)
    rows[3].update(sleep=60)
    summary = await collection(rows, concurrency=10, retries=1, budget_s=1.5, drain_margin_s=0.0)
    for record in lines(collection.output):
        assert call_ids(record) == [f"call-{record['_ng_task_index']}-0"]
        assert record["reward"] == 1.0
        assert record["ng_trajectory"]["rollout_id"] == f"{record['_ng_task_index']}-0"
    left = {
        (r["_ng_task_index"], r.get("_ng_attempt_index", 0)): r for r in lines(collection.failures)
    }
    assert set(left) == {(2, 0), (2, 1), (3, 0)}
    assert call_ids(left[2, 0]) == ["call-2-0"]
    assert call_ids(left[2, 1]) == ["call-2-0-a1"]
    assert call_ids(left[3, 0]) == ["call-3-0"]
    assert {"code": "rollout_interrupted"} in left[3, 0]["ng_model_call_capture"]["gaps"]
    assert all("reward" not in record for record in left.values())
    counted = summary.as_dict()["agents"]["a"]
    assert (counted["calls"], counted["rollouts_with_calls"]) == (4, 4)
    assert counted["tokens"]["tokens_in"] == {"sum": 12, "calls": 4}
    assert summary.unclaimed == []


@pytest.mark.parametrize("form", ["full", "packed"])
async def test_captures_go_once_their_records_are_there(collection, form):
    for name in ("0-0", "9-0"):
        collection.agent.store.record(name, exchange("old"))
    rows = [{"n": n} for n in range(4)]
    rows[3].update(do="status", status=500)
    summary = await collection(rows, delete_captures=True, form=form)
    assert {tuple(call_ids(record)) for record in read_log(collection.output)} == {
        (f"call-{n}-0",) for n in range(3)
    }
    left = sorted(path.name for path in collection.captures.glob("*.jsonl"))
    assert left == ["3-0.capture.jsonl", "9-0.capture.jsonl"]
    assert summary.captures_kept == 0


async def test_a_capture_in_doubt_is_kept(collection):
    class Doubtful(Recording):
        async def answer(self, request, row):
            answer = await super().answer(request, row)
            with (collection.captures / f"{row['_ng_task_index']}-0.capture.jsonl").open("ab") as f:
                f.write(b"not JSON\n")
            return answer

    collection.agent.__class__ = Doubtful
    summary = await collection([{"n": 1}], delete_captures=True)
    assert (collection.captures / "0-0.capture.jsonl").exists()
    assert summary.captures_kept == 1


async def test_a_lost_attempt_keeps_its_calls(collection):
    await collection([{"p": 1}], repeats=3, concurrency=1)
    kept = collection.output.read_bytes().splitlines(keepends=True)
    collection.output.write_bytes(b"".join(kept[:2]) + kept[2][:50])
    summary = await collection([{"p": 1}], repeats=3, resume=True)
    assert summary.succeeded == 3
    [lost] = lines(collection.failures)
    assert lost["_ng_omitted_rollout"] == "interrupted"
    assert call_ids(lost) == ["call-0-2"]
    last = lines(collection.output)[-1]
    assert call_ids(last) == ["call-0-2-a1"]
    latest = latest_executed([*lines(collection.output), lost])
    assert [r.get("_ng_attempt_index", 0) for r in latest] == [0, 0, 1]


# --- rollfold enrich ---


def record(number, **keys):
    return {"_ng_task_index": number, "_ng_rollout_index": 0, "reward": 1.0, **keys}


@pytest.fixture
def offline(tmp_path):
    captures = tmp_path / "captures"
    store = CaptureStore(captures, durability="none")
    for number in range(5):
        store.record(f"{number}-0", exchange(f"call-{number}"))
    source, output = tmp_path / "in.jsonl", tmp_path / "enriched.jsonl"
    source.write_text("".join(json.dumps(record(n)) + "\n" for n in range(4)))

    def run(**options):
        given = {"source": source, "output": output, "captures": [captures], **options}
        return enrich_file(EnrichOptions(**given))

    run.source, run.output, run.captures, run.directory = source, output, captures, tmp_path
    return run


def test_records_are_enriched_in_order(offline):
    summary = offline(threads=2)
    done = lines(offline.output)
    assert [r["_ng_task_index"] for r in done] == [0, 1, 2, 3]
    assert [call_ids(r) for r in done] == [[f"call-{n}"] for n in range(4)]
    assert (summary.records, summary.unreadable) == (4, 0)
    assert summary.unclaimed == ["4-0.capture.jsonl"]
    first = offline.output.read_bytes()
    offline(source=offline.output)
    assert offline.output.read_bytes() == first


def test_every_form_is_read_and_written(offline):
    offline(form="packed")
    packed = offline.output.read_bytes()
    assert packed.startswith(b'{"rollfold_packed":')
    offline()
    full = lines(offline.output)
    log = offline.directory / "log"
    with RolloutLog(log) as written:
        written.append_many(lines(offline.source))
    [compressed] = [path for path in log.rglob("*") if path.name.endswith(".zst")]
    offline(source=compressed)
    assert lines(offline.output) == full
    source = offline.directory / "packed.jsonl"
    source.write_bytes(b"".join(pack(one) + b"\n" for one in lines(offline.source)))
    offline(source=source)
    assert lines(offline.output) == full


def test_what_cannot_be_read_or_enriched_costs_itself(offline):
    text = offline.source.read_text().splitlines(keepends=True)
    bad = json.dumps({"_ng_rollout_id": "a b", "reward": 2.0}) + "\n"
    offline.source.write_text(text[0] + "{broken\n" + bad + "[1]\n" + text[1] + '{"torn": ')
    summary = offline()
    done = lines(offline.output)
    assert [r["reward"] for r in done] == [1.0, 2.0, 1.0]
    assert done[1] == {"_ng_rollout_id": "a b", "reward": 2.0}
    assert (summary.unreadable, summary.enrich_errors) == (3, 1)
    assert [note.rsplit(": ", 1)[-1] for note in summary.notes] == [
        f"line {n} cannot be read" for n in (2, 4, 6)
    ]


def test_a_dry_run_writes_and_deletes_nothing(offline):
    before = sorted(offline.directory.rglob("*"))
    summary = offline(dry_run=True, delete_captures=True)
    assert sorted(offline.directory.rglob("*")) == before
    assert summary.with_calls == 4


def test_captures_go_once_the_file_is_there(offline):
    offline(delete_captures=True)
    assert [path.name for path in offline.captures.glob("*.jsonl")] == ["4-0.capture.jsonl"]
    assert [call_ids(r) for r in lines(offline.output)] == [[f"call-{n}"] for n in range(4)]


def test_a_failed_write_leaves_nothing(offline):
    with pytest.raises(OSError, match="nowhere"):
        offline(output=offline.directory / "nowhere" / "out.jsonl")
    with pytest.raises(InputError, match="no such file"):
        offline(source=offline.directory / "none.jsonl")
    assert not [path for path in offline.directory.iterdir() if "tmp" in path.name]


def test_memory_does_not_grow_with_the_file(offline):
    code = (
        "import resource, sys, json\n"
        "from pathlib import Path\n"
        "from rollfold.collect.offline import EnrichOptions, enrich_file\n"
        "enrich_file(EnrichOptions(source=Path(sys.argv[1]), output=Path(sys.argv[2]), "
        "captures=[Path(sys.argv[3])], threads=1))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak(count):
        source = offline.directory / f"{count}.jsonl"
        with source.open("w") as file:
            for number in range(count):
                file.write(json.dumps(record(100 + number, pad="x" * 200_000)) + "\n")
        arguments = [source, offline.output, offline.captures]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert peak(400) - peak(40) < 30_000  # KB; the files differ by 72 MB


async def test_the_demo(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "demo.run", str(tmp_path / "demo"),
        cwd=HOME,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, stderr = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, (stdout, stderr)
    assert b"Traceback" not in stderr
    records = {r["_ng_task_index"]: r for r in lines(tmp_path / "demo" / "rollouts.jsonl")}
    assert len(records) == 47
    assert str(tmp_path / "demo" / "rollouts.jsonl") in stdout.decode().replace("\n", "")
    for record in records.values():
        trajectory = record["ng_trajectory"]
        codes = {gap["code"] for gap in trajectory["gaps"]}
        assert codes == set(), (record["agent_ref"], codes)
        assert trajectory["turns"]
        assert all(turn["answer"] for turn in trajectory["turns"])
        owned = sum(len(one["model_calls"]) for one in trajectory["invocations"])
        assert owned == len(trajectory["model_calls"])
        assert record["ng_perf"]["token_observability_coverage"] <= 1.0
    by_agent = {}
    for record in records.values():
        by_agent.setdefault(record["agent_ref"]["name"], []).append(record)
    assert {name: len(found) for name, found in by_agent.items()} == {
        "chat": 16,
        "responses": 15,
        "messages": 16,
    }
    assert all(len(r["ng_trajectory"]["invocations"]) == 2 for r in by_agent["responses"])
    for one in by_agent["messages"]:
        kinds = [r["kind"] for r in one["ng_agent_observations"]["records"]]
        assert "context_compaction" in kinds
        calls = one["ng_trajectory"]["model_calls"]
        assert len(one["ng_trajectory"]["turns"]) == len(calls) - 1  # the summary is no turn
    cut = records[9]["ng_trajectory"]["model_calls"]
    categories = [call["response_metadata"]["error_category"] for call in cut]
    assert categories.count("stream_truncated") == 1
    [failed] = lines(tmp_path / "demo" / "rollouts_failures.jsonl")
    assert (failed["_ng_task_index"], failed["_ng_failure_class"]) == (4, "agent_run_error")
