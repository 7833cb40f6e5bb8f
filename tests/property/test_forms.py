"""All forms of the enrichment say the same, of any rollout, however often it is enriched."""

import json
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollfold import (
    RolloutLog,
    dumps,
    enrich_run_result,
    enrich_run_result_json,
    enrich_run_results,
    enrich_run_results_json,
    join_model_call_observations,
    merge_model_call_capture_into_record,
    pack,
    read_log,
    unpack,
)
from rollfold.trajectory import attach_ng_perf, attach_trajectory_record
from tests.property.odd import Odd
from tests.rollouts import ROLLOUT_ID, ROW

pytestmark = pytest.mark.filterwarnings("ignore::rollfold.log_reading.RolloutLogWarning")
rollouts = given(st.randoms(use_true_random=True), st.sampled_from([0.0, 0.03, 0.1]))
often = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def text_of(value):
    """Give a value's text: with the types of numbers, the sign of zero, the order of keys."""
    return json.dumps(value)


class Rollout:
    """An odd rollout and how it is to be enriched."""

    def __init__(self, random: Random, oddness: float, directory: Path) -> None:
        odd = Odd(random, oddness)
        (directory / f"{ROLLOUT_ID}.capture.jsonl").write_bytes(odd.capture())
        self.result = odd.result()
        self.body = odd.spelled(self.result).encode()
        self.each = {"rollout_latency_ms": odd.one(None, 5), "not_before": odd.one(None, None, 15)}
        self.options = {
            "capture_dirs": odd.one([directory], [directory], [directory], None),
            "observability_enabled": odd.maybe(0.9),
            "include_payloads": odd.maybe(0.9),
        }
        self.captured = self.options["capture_dirs"] is not None

    def as_dict(self, result=None):
        result = dict(self.result if result is None else result)
        return enrich_run_result(dict(ROW), result, **self.options, **self.each)

    def as_json(self, result, form="full"):
        made = enrich_run_result_json(dict(ROW), result, form=form, **self.options, **self.each)
        return json.loads(made) if form == "full" else unpack(made)


@rollouts
@often
def test_every_form_gives_the_same_record(random, oddness):
    with tempfile.TemporaryDirectory() as path:
        rollout = Rollout(random, oddness, Path(path))
        before = text_of(rollout.result)
        made = rollout.as_dict()
        want = text_of(made)
        assert text_of(rollout.result) == before
        for form in ("full", "packed"):
            assert text_of(rollout.as_json(dict(rollout.result), form)) == want
            assert text_of(rollout.as_json(rollout.body, form)) == want
        assert text_of(json.loads(dumps(made))) == want
        assert text_of(unpack(pack(made))) == want
        assert text_of(rollout.result) == before


@rollouts
@often
def test_a_batch_and_a_log_give_what_each_alone_gives(random, oddness):
    with tempfile.TemporaryDirectory() as path:
        rollout = Rollout(random, oddness, Path(path))
        want = text_of(rollout.as_dict())
        for threads in (1, 2):
            options = {"threads": threads, **rollout.options}
            items = [{"row": ROW, "result": dict(rollout.result), **rollout.each} for _ in "12"]
            assert [text_of(one) for one in enrich_run_results(items, **options)] == [want] * 2
            items = [{"row": ROW, "result": rollout.body, **rollout.each}] * 2
            made = enrich_run_results_json(items, **options)
            assert [text_of(json.loads(one)) for one in made] == [want] * 2
        for form in ("full", "packed"):
            file = Path(path) / f"{form}.jsonl"
            with RolloutLog(file, form=form) as log:
                log.append_enriched(ROW, rollout.body, **rollout.options, **rollout.each)
                log.append(json.loads(want))
            assert [text_of(one) for one in read_log(file)] == [want] * 2


@rollouts
@often
def test_enriching_again_changes_nothing(random, oddness):
    with tempfile.TemporaryDirectory() as path:
        rollout = Rollout(random, oddness, Path(path))
        once = rollout.as_dict()
        want = text_of(once)
        assert text_of(rollout.as_dict(once)) == want
        assert text_of(rollout.as_dict(json.loads(want))) == want
        assert text_of(rollout.as_json(dumps(once))) == want
        assert text_of(rollout.as_json(dict(once), "packed")) == want


@rollouts
@often
def test_the_stages_alone_give_what_the_whole_gives(random, oddness):
    with tempfile.TemporaryDirectory() as path:
        rollout = Rollout(random, oddness, Path(path))
        rollout.options |= {"capture_dirs": [path], "include_payloads": True}
        rollout.each |= {"not_before": None}
        rollout.result.pop("_ng_omitted_rollout", None)
        rollout.result.pop("_ng_failure_class", None)
        whole = rollout.as_dict()
        stages = ROW | rollout.result
        merge_model_call_capture_into_record(stages, [path], include_payloads=True)
        calls = stages["ng_model_call_capture"]["calls"]
        observations = rollout.result.get("ng_agent_observations")
        malformed = observations is not None and observations == whole["ng_agent_observations"]
        if observations is not None and not malformed and "ng_verifier_invocations" not in stages:
            joined = join_model_call_observations(observations, calls)
            assert text_of(joined) == text_of(whole["ng_agent_observations"])
        attach_trajectory_record(ROW, stages)
        assert text_of(stages["ng_trajectory"]) == text_of(whole["ng_trajectory"])
        attach_ng_perf(
            stages,
            observability_enabled=rollout.options["observability_enabled"],
            rollout_latency_ms=rollout.each["rollout_latency_ms"],
        )
        assert text_of(stages.get("ng_perf")) == text_of(whole.get("ng_perf"))
