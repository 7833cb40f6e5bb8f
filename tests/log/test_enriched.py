"""Enriched records straight into a log: the same as by way of Python."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
import shapes
from rollfold import _core
from rollfold.enrich import enrich_run_result, enrich_run_result_json
from rollfold.errors import RolloutIdError
from rollfold.log import RolloutLog, read_log

SHAPES = ["small", "chat", "agentic"]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("captures")
    return [shapes.generate(shape, directory, task=number) for number, shape in enumerate(SHAPES)]


def options(rollout):
    return {"capture_dirs": [rollout.capture_dir], "observability_enabled": True}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "log"])
@pytest.mark.parametrize("form", ["packed", "full"])
def test_the_record_is_the_same(tmp_path, rollouts, form, name):
    with RolloutLog(tmp_path / name, form) as log:
        for rollout in rollouts:
            log.append_enriched(rollout.row, rollout.result_json(), **options(rollout))
            log.append_enriched(rollout.row, rollout.fresh_result(), **options(rollout))
        for rollout in rollouts:
            assert log.get(rollout.rollout_id)["_ng_task_index"] == rollout.row["_ng_task_index"]
    index = Path(f"{log.files[0]}.index").read_bytes()
    lines = list(read_log(tmp_path / name, form="line"))
    whole = list(read_log(tmp_path / name, form="full"))
    for number, rollout in enumerate(rollouts):
        expected = enrich_run_result_json(
            rollout.row, rollout.result_json(), form=form, **options(rollout)
        )
        assert lines[2 * number] == expected
        result = enrich_run_result(rollout.row, rollout.fresh_result(), **options(rollout))
        assert _core.loads(whole[2 * number]) == _core.loads(_core.dumps(result))
        assert _core.loads(whole[2 * number + 1]) == _core.loads(whole[2 * number])
    # What the index was told is what it finds by itself.
    Path(f"{log.files[0]}.index").unlink()
    RolloutLog(tmp_path / name, form).close()
    assert Path(f"{log.files[0]}.index").read_bytes() == index


def test_rows_that_have_no_capture(tmp_path, rollouts):
    given = options(rollouts[0])
    with RolloutLog(tmp_path / "a.jsonl") as log:
        log.append_enriched({"_ng_rollout_id": "x"}, {"reward": 1}, **given)
        unstarted = {"_ng_omitted_rollout": "never_started"}
        log.append_enriched({"_ng_rollout_id": "y"}, unstarted, **given)
        log.append_enriched({}, b'{"reward": 2}', **given)
        log.append_enriched({"_ng_rollout_id": "z"}, b'{"_ng_rollout_id": "w"}', **given)
        with pytest.raises(RolloutIdError):
            log.append_enriched({"_ng_rollout_id": "/"}, b"{}", **given)
        with pytest.raises(ValueError, match="byte"):
            log.append_enriched({"_ng_rollout_id": "v"}, b"{", **given)
        assert log.ids() == ["x", "y", "w"]
        assert log.get("y") == {"_ng_omitted_rollout": "never_started", "_ng_rollout_id": "y"}
        assert len(list(log)) == 4
    index = Path(f"{log.path}.index").read_bytes()
    Path(f"{log.path}.index").unlink()
    RolloutLog(tmp_path / "a.jsonl").close()
    assert Path(f"{log.path}.index").read_bytes() == index
