"""NeMo Gym's own record models accept what is written, where it is installed."""

import orjson
import pytest

from rollfold import enrich_run_result
from tests import golden_cases

pytest.importorskip("nemo_gym")

from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.rollout_observability import AgentObservationBundle, TrajectoryRecord


@pytest.mark.parametrize(
    "case",
    [*golden_cases.cases(), *golden_cases.messages_cases()],
    ids=lambda case: case["name"],
)
def test_its_models_accept_a_golden_output(case, tmp_path):
    row, result = golden_cases.lay_out(case, tmp_path)
    enrich_run_result(row, result, capture_dirs=[tmp_path], **case["args"])
    written = orjson.loads(orjson.dumps(result))
    trajectory = written["ng_trajectory"]
    if trajectory["task_id"] is not None:  # schema 1.1: what it has no word for
        TrajectoryRecord.model_validate(trajectory)
    merged = written["ng_model_call_capture"]
    for call in merged["calls"]:
        ModelCallRecord.model_validate(call)
    codes = {gap["code"] for gap in merged.get("gaps", [])}
    if "ng_agent_observations" in written and "agent_observation_join_failed" not in codes:
        AgentObservationBundle.model_validate(written["ng_agent_observations"])
