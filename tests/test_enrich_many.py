"""Batches: one budget of waiting, one outcome an item, the row's identity in every form."""

import json
import threading
import time

import pytest

from rollfold import (
    _core,
    dumps,
    enrich_run_result,
    enrich_run_result_json,
    enrich_run_results,
    enrich_run_results_json,
    identity,
    unpack,
)
from tests import golden_cases
from tests.rollouts import ROW

FORMS = [
    pytest.param(enrich_run_results, {}, id="dict"),
    pytest.param(enrich_run_results, {"threads": 2}, id="dict-threads"),
    pytest.param(enrich_run_results_json, {}, id="json"),
    pytest.param(enrich_run_results_json, {"threads": 2}, id="json-threads"),
    pytest.param(enrich_run_results_json, {"form": "packed"}, id="packed"),
]


def record(outcome) -> dict:
    text = outcome if isinstance(outcome, bytes) else dumps(outcome)
    return json.loads(dumps(unpack(text)) if b"rollfold_packed" in text[:20] else text)


def rows(count: int):
    return [({"_ng_task_index": 0, "_ng_rollout_index": n}, {"reward": n}) for n in range(count)]


@pytest.mark.parametrize(("enrich", "options"), FORMS)
def test_a_batch_waits_for_calls_in_flight_once_and_not_for_each(tmp_path, enrich, options):
    announcer = _core.InflightAnnouncer(str(tmp_path))
    for n in range(20):
        announcer.enter(f"0-{n}")
    began = time.monotonic()
    outcomes = list(
        enrich(
            rows(20),
            capture_dirs=[tmp_path],
            observability_enabled=True,
            quiescence_timeout_s=0.5,
            **options,
        )
    )
    # Twenty waits would be ten seconds, five on two threads; the bound is far from both.
    assert time.monotonic() - began < 4
    for outcome in outcomes:
        gaps = [gap["code"] for gap in record(outcome)["ng_model_call_capture"]["gaps"]]
        assert "model_call_capture_not_quiescent" in gaps


def test_what_other_threads_waited_is_not_taken_from_a_batch(tmp_path):
    """The budget is the batch's own: counters of the process are no measure of it."""
    announcer = _core.InflightAnnouncer(str(tmp_path))
    options = {"capture_dirs": [tmp_path], "observability_enabled": True}
    for name in ("other", "0-0", "0-1"):
        announcer.enter(name)

    def wait_elsewhere():
        enrich_run_result({"_ng_rollout_id": "other"}, {}, quiescence_timeout_s=0.4, **options)

    def source():
        first, second = rows(2)
        others = [threading.Thread(target=wait_elsewhere) for _ in range(12)]
        for thread in others:
            thread.start()
        threading.Timer(1.0, announcer.leave, ["0-0"]).start()
        yield first
        for thread in others:
            thread.join()
        threading.Timer(0.3, announcer.leave, ["0-1"]).start()
        yield second

    for outcome in enrich_run_results(source(), quiescence_timeout_s=4.0, **options):
        gaps = [gap["code"] for gap in outcome["ng_model_call_capture"]["gaps"]]
        assert "model_call_capture_not_quiescent" not in gaps


@pytest.mark.parametrize(("enrich", "options"), FORMS)
def test_an_item_that_fails_costs_itself_alone(tmp_path, enrich, options):
    items = [
        rows(1)[0],
        ({"_ng_rollout_id": "../x"}, {}),
        "no pair at all",
        None,
        ({"_ng_rollout_id": "last"}, {"reward": 2}),
    ]
    outcomes = list(enrich(items, capture_dirs=[tmp_path], observability_enabled=True, **options))
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert record(outcomes[-1])["reward"] == 2


@pytest.mark.parametrize(("enrich", "options"), FORMS)
def test_a_source_that_breaks_keeps_what_it_gave(tmp_path, enrich, options):
    def source():
        yield from rows(3)
        raise OSError("the file ends here")

    outcomes = []
    with pytest.raises(OSError, match="the file ends here"):
        for outcome in enrich(
            source(), capture_dirs=[tmp_path], observability_enabled=True, **options
        ):
            outcomes.append(outcome)  # noqa: PERF402 -- those before the error count
    assert [record(outcome)["reward"] for outcome in outcomes] == [0, 1, 2]


def test_threads_give_what_one_gives_in_the_same_order(tmp_path):
    cases = golden_cases.cases()[:80]
    items = []
    for number, case in enumerate(cases):
        directory = tmp_path / str(number)
        directory.mkdir()
        row, result = golden_cases.lay_out(case, directory)
        for file in directory.iterdir():
            file.rename(tmp_path / file.name.replace(file.name.split(".")[0], f"r-{number}", 1))
        whose = {"_ng_rollout_id": f"r-{number}", "_ng_attempt_index": None}
        items.append(({**row, **whose}, {**result, **whose}))

    def enriched(threads):
        given = [(row, dict(result)) for row, result in items]
        outcomes = enrich_run_results(
            given, threads=threads, capture_dirs=[tmp_path], observability_enabled=True
        )
        return [dumps(outcome) for outcome in outcomes]

    together = enriched(4)
    assert together == enriched(None)
    assert sum(b'"num_calls":0' not in record for record in together) > 40


@pytest.mark.parametrize("threads", [2, 5, 8])
def test_records_that_do_not_fit_at_once_are_made_once_and_none_is_lost(tmp_path, threads):
    # Of unequal size, so that threads end their share in any order; deletion takes what was
    # read, so a record that was made and not given would be gone.
    given = rows(40)
    for n in range(40):
        said = "x" * ((n * 7919) % 5 * 300_000)
        call = {"model_call_id": f"call-{n}", "dialect": "chat", "response": {"said": said}}
        (tmp_path / f"0-{n}.capture.jsonl").write_text(json.dumps(call) + "\n")
    outcomes = enrich_run_results_json(
        given,
        threads=threads,
        capture_dirs=[tmp_path],
        observability_enabled=True,
        delete_capture=True,
    )
    for n, outcome in enumerate(outcomes):
        (call,) = record(outcome)["ng_model_call_capture"]["calls"]
        assert (record(outcome)["reward"], call["model_call_id"]) == (n, f"call-{n}")
    assert not list(tmp_path.glob("*.capture.jsonl"))


def test_what_waits_does_not_hold_up_the_others(tmp_path):
    """Six rollouts whose calls end together are waited for together."""
    announcer = _core.InflightAnnouncer(str(tmp_path))
    for n in range(6):
        announcer.enter(f"0-{n}")
    drawn = []

    def source():
        for item in rows(6):
            drawn.append(item)
            if len(drawn) == 6:
                # All are on their way, else this is never reached and time runs out.
                for n in range(6):
                    announcer.leave(f"0-{n}")
            yield item

    outcomes = list(
        enrich_run_results(
            source(),
            threads=6,
            capture_dirs=[tmp_path],
            observability_enabled=True,
            quiescence_timeout_s=100.0,
        )
    )
    for outcome in outcomes:
        gaps = [gap["code"] for gap in outcome["ng_model_call_capture"]["gaps"]]
        assert gaps == ["model_call_capture_no_records"]


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_items_are_drawn_as_they_are_needed(tmp_path, threads):
    drawn = []

    def source():
        for item in rows(100):
            drawn.append(item)
            yield item

    outcomes = enrich_run_results(
        source(), threads=threads, capture_dirs=[tmp_path], observability_enabled=True
    )
    assert drawn == []
    for number, _ in zip(range(10), outcomes, strict=False):
        assert len(drawn) <= number + 1 + (threads or 1)
    outcomes.close()
    begun = [result for _, result in drawn if "ng_model_call_capture" in result]
    assert 10 <= len(begun) <= len(drawn) < 20


async def test_threads_in_an_event_loop_do_not_wait(tmp_path):
    announcer = _core.InflightAnnouncer(str(tmp_path))
    for n in range(4):
        announcer.enter(f"0-{n}")
    outcomes = enrich_run_results(
        rows(4),
        threads=2,
        capture_dirs=[tmp_path],
        observability_enabled=True,
        quiescence_timeout_s=3600.0,
    )
    for outcome in outcomes:
        gaps = [gap["code"] for gap in outcome["ng_model_call_capture"]["gaps"]]
        assert "model_call_capture_not_quiescent" in gaps


def test_every_identity_key_there_is_reaches_every_form(tmp_path, monkeypatch):
    """The keys are one constant: a later one needs no second place (contract, section 2)."""
    keys = (*identity.IDENTITY_KEYS, "weight_version", "agent_instance")
    monkeypatch.setattr(identity, "IDENTITY_KEYS", keys)
    row = {"_ng_rollout_id": "a", "weight_version": 7, "agent_instance": {"n": [1]}}
    options = {"capture_dirs": [tmp_path], "observability_enabled": True}
    whole = json.loads(dumps(enrich_run_result(row, {"agent_instance": None}, **options)))
    assert (whole["weight_version"], whole["agent_instance"]) == (7, {"n": [1]})
    for form in ("full", "packed"):
        text = enrich_run_result_json(row, b'{"agent_instance":null}', form=form, **options)
        assert record(text) == whole


def test_arguments_that_there_are_not_are_named(tmp_path):
    options = {"capture_dirs": [tmp_path], "observability_enabled": True}
    row = {"_ng_rollout_id": "a"}
    with pytest.raises(ValueError, match="form: must be 'full' or 'packed', not 'fulll'"):
        enrich_run_result_json(row, b"{}", form="fulll", **options)
    with pytest.raises(ValueError, match="form: "):
        enrich_run_results_json([], form="", **options)
    for threads in (0, -1):
        for batch in (enrich_run_results, enrich_run_results_json):
            with pytest.raises(ValueError, match=f"threads: must be 1 or more, not {threads}"):
                batch([], threads=threads, **options)
    for enrich in (enrich_run_result, enrich_run_result_json):
        with pytest.raises(TypeError, match="result: must be a mapping, not list"):
            enrich(row, [1], **options)
        with pytest.raises(TypeError, match="row: must be a mapping, not str"):
            enrich("row", {}, **options)


ODD_ITEMS = {
    "item: must be (row, result), or a mapping that has them": [5, None, (), (1,), (1, 2, 3), "ab"],
    "item: has no row": [{}, {"result": {}}],
    "item: has no result": [{"row": ROW}],
    "row: must be a mapping, not NoneType": [(None, {})],
    "result: must be a mapping, not NoneType": [(ROW, None)],
    "rollout_latency_ms: must be a number, not str": [
        {"row": ROW, "result": {}, "rollout_latency_ms": "5"}
    ],
    "not_before: must be a number, not list": [{"row": ROW, "result": {}, "not_before": []}],
    "not_before: int too large to convert to float": [
        {"row": ROW, "result": {}, "not_before": 10**400}
    ],
}


@pytest.mark.parametrize("many", [enrich_run_results, enrich_run_results_json])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("told", "item"), [(told, item) for told, items in ODD_ITEMS.items() for item in items]
)
def test_an_odd_item_costs_itself_and_says_what_it_lacks(tmp_path, many, threads, told, item):
    items = [item, (ROW, {})]
    options = {"threads": threads, "capture_dirs": [tmp_path], "observability_enabled": True}
    bad, good = many(items, **options)
    assert str(bad) == told
    assert not isinstance(good, Exception)
