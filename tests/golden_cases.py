"""The golden cases and how they compare (tests/golden/README.md)."""

import copy
import gzip
import json
from functools import cache
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"

OUR_GAPS = {
    "model_call_capture_not_quiescent",
    "model_call_capture_lock_unavailable",
    "model_call_duplicate",
    "model_call_capture_late_records",
    "model_call_capture_stale_records",
    "rollout_interrupted",
    "rollout_identity_unavailable",
    "rollout_identity_conflict",
    "turn_content_unconverted",
    "tool_call_output_ambiguous",
}
GAP_LISTS = [
    ("ng_model_call_capture", "gaps"),
    ("ng_agent_observations", "gaps"),
    ("ng_trajectory", "gaps"),
]


@cache
def load(name):
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cases():
    return load("cases.jsonl.gz")


def messages_cases():
    return load("messages.jsonl.gz")


def lay_out(case, directory):
    """Write the case's capture directory; give the row and the result that go in."""
    for name, text in case["files"].items():
        (directory / name).write_bytes(text.encode())
    return copy.deepcopy(case["row"]), copy.deepcopy(case["result"])


def comparable(result, masks):
    """A result as JSON without the masked paths and without what is Rollfold's alone."""
    result = copy.deepcopy(result)
    for path in masks:
        remove(result, path)
    result.pop("_ng_trajectory_source", None)
    result.get("ng_model_call_capture", {}).pop("metrics_coverage", None)
    dropped = OUR_GAPS | ({"turns_unavailable"} if ["ng_trajectory", "turns"] in masks else set())
    for path in GAP_LISTS:
        holder = result.get(path[0])
        if isinstance(holder, dict) and isinstance(holder.get("gaps"), list):
            kept = [gap for gap in holder["gaps"] if gap.get("code") not in dropped]
            if kept or path[0] != "ng_model_call_capture":
                holder["gaps"] = kept
            else:
                del holder["gaps"]
    return result


def remove(value, path):
    *parents, last = path
    for key in parents:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return
    if isinstance(value, dict):
        value.pop(last, None)
    elif isinstance(value, list) and isinstance(last, int) and last < len(value):
        value[last] = None


def differences(got, want, path="result"):
    """Where two JSON values differ, as lines; numbers compare as numbers, bools as bools."""
    if isinstance(got, dict) and isinstance(want, dict):
        found = [f"{path}.{key}: only in got" for key in got.keys() - want.keys()]
        found += [f"{path}.{key}: missing" for key in want.keys() - got.keys()]
        for key in got.keys() & want.keys():
            found += differences(got[key], want[key], f"{path}.{key}")
        return found
    if isinstance(got, list) and isinstance(want, list):
        found = [] if len(got) == len(want) else [f"{path}: {len(got)} items, not {len(want)}"]
        for index, (left, right) in enumerate(zip(got, want, strict=False)):
            found += differences(left, right, f"{path}[{index}]")
        return found
    same = got == want and isinstance(got, bool) == isinstance(want, bool)
    return [] if same else [f"{path}: {got!r:.120} is not {want!r:.120}"]
