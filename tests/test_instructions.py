"""Instructions, not seconds: the core may not grow slower unnoticed.

callgrind counts the instructions of a fixed input, the same on a loaded machine and an idle one.
The bounds are generous: about twice what was counted when they were set, so that a compiler's mood
passes and a lost fast path does not.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches"))

from shapes import generate  # noqa: E402  (the benches are no package)

pytestmark = [
    pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed"),
    pytest.mark.skipif(not shutil.which("cargo"), reason="no Rust toolchain"),
]

# Instructions per byte of the capture.
BOUNDS = {
    ("scan", "small"): 8.5,
    ("scan", "chat"): 8.5,
    ("scan", "tokens"): 12.5,
    ("calls", "small"): 16.0,
    ("calls", "chat"): 4.5,
    ("calls", "tokens"): 12.5,
    # A history is compared with the one before, not walked: far less than one a byte.
    ("calls", "swe"): 0.85,
}


@pytest.fixture(scope="module")
def program():
    built = subprocess.run(
        ["cargo", "build", "--profile", "quick", "-p", "rollfold-core", "--example", "instructions",
         "--message-format=json"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return next(message["executable"] for message in messages if message.get("executable"))


def instructions(program, stage, capture, repeats, directory):
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/callgrind.out",
         program, stage, str(capture), str(repeats)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


@pytest.mark.parametrize(("stage", "shape"), BOUNDS)
def test_a_stage_stays_within_its_instructions(program, stage, shape, tmp_path):
    rollout = generate(shape, tmp_path)
    few, many = (
        instructions(program, stage, rollout.capture_file, repeats, tmp_path) for repeats in (1, 4)
    )
    each = (many - few) / 3 / rollout.capture_bytes
    assert 0 < each < BOUNDS[stage, shape], f"{each:.2f} instructions a byte"
