"""What is written can be read: records nest deeper than the payloads that they hold."""

import json

import pytest

from rollfold import dumps, enrich_run_result_json, enrich_run_results_json
from rollfold._core import loads
from rollfold.collect.record import decode_line, encode_line
from rollfold.log import LogIndex, RolloutLog, read_log
from rollfold.packed import pack, unpack
from rollfold.records import EnrichedResult
from tests.rollouts import ROLLOUT_ID, ROW, capture, chat, enrich, messages, responses, result_of

DEEPEST_RECORD = 1_088
DEEPEST_LINE = 1_024


def nested(levels):
    """Arrays in arrays, as JSON text: `json` cannot write them so deep."""
    return b"[" * levels + b"]" * levels


def line(exchange, levels, *, hole=b'"HOLE"'):
    """An exchange with arrays at a place of it, the whole `levels` deep."""
    text = json.dumps(exchange, separators=(",", ":")).encode()
    before, _, _ = text.partition(hole)
    outside = before.count(b"{") + before.count(b"[") - before.count(b"}") - before.count(b"]")
    return text.replace(hole, nested(levels - outside))


HOLES = {
    "a request": chat("a", request={"x": "HOLE", "messages": []}),
    "a chat message": chat("a", request={"messages": [{"role": "user", "content": "HOLE"}]}),
    "a response": chat("a", response={"x": "HOLE", "choices": []}),
    "an input item": responses("a", {"input": [{"type": "x", "x": "HOLE"}]}, []),
    "an output item": responses("a", {"input": []}, [{"type": "x", "x": "HOLE"}]),
    "an unknown block": messages("a", [{"type": "x", "x": "HOLE"}]),
    "a tool's input": messages(
        "a", [{"type": "tool_use", "id": "t", "name": "n", "input": "HOLE"}]
    ),
    "a tool result": messages(
        "a",
        [],
        request={
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": ["HOLE"]}],
                }
            ]
        },
    ),
}


@pytest.fixture(params=HOLES)
def rollout(request, tmp_path):
    """A directory with a capture as deep as one is read."""
    directory = tmp_path / "captures"
    directory.mkdir()
    capture(directory, line(HOLES[request.param], DEEPEST_LINE))
    return directory


def test_a_record_is_deeper_than_its_captures_lines(rollout):
    record = dumps(enrich(rollout, result_of("a")))
    with pytest.raises(RecursionError):
        json.loads(record)
    assert dumps(loads(record)) == record


@pytest.mark.parametrize("form", ["full", "packed"])
def test_every_reader_reads_it(rollout, tmp_path, form):
    record = dumps(enrich(rollout, result_of("a")))
    kwargs = {"capture_dirs": [rollout], "observability_enabled": True}
    path = tmp_path / "log.jsonl"
    with RolloutLog(path, form) as log:
        log.append(loads(record))
        log.append(record)
        log.append(pack(record))
        log.append_enriched(ROW, result_of("a"), **kwargs)
        assert [dumps(one) for one in log] == [record] * 4
        assert dumps(log.get(ROLLOUT_ID)) == record
    assert [dumps(one) for one in read_log(path)] == [record] * 4
    assert list(read_log(path, form="full")) == [record] * 4
    assert dumps(LogIndex(path).get(ROLLOUT_ID)) == record
    assert dumps(decode_line(encode_line(loads(record), form))) == record
    assert dumps(unpack(pack(loads(record)))) == record
    EnrichedResult.model_validate(loads(record))


def test_it_is_enriched_again_from_its_text(rollout):
    kwargs = {"capture_dirs": [rollout], "observability_enabled": True}
    record = enrich_run_result_json(ROW, dumps(result_of("a")), **kwargs)
    assert enrich_run_result_json(ROW, record, **kwargs) == record
    (again,) = enrich_run_results_json([(ROW, record)], **kwargs)
    assert again == record
    assert dumps(enrich(rollout, loads(record))) == record


@pytest.mark.parametrize("levels", range(DEEPEST_LINE - 1, DEEPEST_RECORD + 4))
def test_what_is_written_is_read_and_nothing_else(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    if levels <= DEEPEST_RECORD:
        assert dumps(value) == nested(levels)
        assert dumps(loads(dumps(value))) == nested(levels)
    else:
        with pytest.raises(ValueError, match="deep"):
            dumps(value)
        with pytest.raises(ValueError, match="nested too deep at byte 1088"):
            loads(nested(levels))


def test_a_log_says_what_it_does_not_take(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":' + nested(DEEPEST_RECORD) + b"}\n")
    told = []
    assert list(read_log(path, on_damage=lambda *what: told.append(what))) == []
    ((_, offset, _, reason),) = told
    assert offset == 0
    assert "nested too deep" in reason
