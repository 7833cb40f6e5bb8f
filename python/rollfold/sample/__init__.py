"""Three real rollouts with their captures: the sample of the README and of `make demo`."""

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent
CAPTURES: Final = ROOT / "captures"
"""The sample's capture directory."""


def rollouts() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Give each rollout's row and result, fresh ones at every call."""
    rows, results = (
        [json.loads(line) for line in (ROOT / name).read_text("utf-8").splitlines()]
        for name in ("rows.jsonl", "results.jsonl")
    )
    return list(zip(rows, results, strict=True))
