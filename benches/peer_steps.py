"""Runs in the peer's own environment: times nemo-gym's steps on the captures of a manifest.

    python peer_steps.py < manifest.json > timings.json

The manifest is a list of {shape, capture_dir, row, result, repeats}. Each repeat gets a fresh
result and goes through the collector's three steps; `bytes` adds `orjson.dumps` of the record.
Imports nothing of Rollfold, so both sides can be measured on their own Python.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from nemo_gym import rollout_collection as peer


def steps(row: dict[str, Any], result: dict[str, Any], capture_dirs: list[Path]) -> dict[str, Any]:
    """Enrich as the collector of nemo-gym 0.7.0 does: identity, merge, trajectory, perf."""
    for key, value in row.items():
        if key.startswith("_ng_") or key in ("agent_ref", "task_source", "skills_ref"):
            result.setdefault(key, value)
    peer.merge_model_call_capture_into_record(result, capture_dirs, include_payloads=True)
    peer._attach_trajectory_record(row, result)  # noqa: SLF001  (its step has no public name)
    peer._attach_ng_perf(result, observability_enabled=True, rollout_latency_ms=1234.5)  # noqa: SLF001
    return result


def measure(entry: dict[str, Any]) -> dict[str, Any]:
    body = orjson.dumps(entry["result"])
    row = entry["row"]
    directory = Path(entry["capture_dir"])
    enriched: list[float] = []
    dumped: list[float] = []
    floor: list[float] = []
    turns = size = 0
    lines = next(directory.glob("*.capture.jsonl")).read_bytes().splitlines()
    for _ in range(entry["repeats"] + 1):
        result = orjson.loads(body)
        start = time.perf_counter()
        record = steps(row, result, [directory])
        middle = time.perf_counter()
        size = len(orjson.dumps(record))
        end = time.perf_counter()
        enriched.append(middle - start)
        dumped.append(end - start)
        turns = len(record["ng_trajectory"]["turns"])
        del record, result
        start = time.perf_counter()
        for line in lines:
            orjson.dumps(orjson.loads(line))
        floor.append(time.perf_counter() - start)
    return {
        "shape": entry["shape"],
        "dict": enriched[1:],
        "bytes": dumped[1:],
        "loads_dumps": floor[1:],
        "turns": turns,
        "record_bytes": size,
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    output = [measure(entry) for entry in json.load(sys.stdin)]
    json.dump({"python": sys.version.split()[0], "timings": output}, sys.stdout)


if __name__ == "__main__":
    main()
