"""Where a rollout's instructions go, by function: callgrind counts, which no neighbour disturbs.

    python benches/instructions.py agentic packed

Runs the form some times and some times more under `valgrind --tool=callgrind` and prints the
difference per rollout: what a function takes with all it calls, and by itself. Functions of the
extension have their names where it was built with symbols (`strip = false` in pyproject.toml).
What calls itself is counted with what it calls at each level (names with an apostrophe).
A copy by `rep movsb` counts an instruction a byte: `memcpy` weighs more here than in time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import ours
from figures import table
from shapes import SHAPES, generate

FORMS = ("dict", "bytes", "packed")
FEW, MANY = 4, 14
Counts = Counter[str]
NAMED = re.compile(r"(c?fn)=\((\d+)\)(?: (.*))?")
COST = re.compile(r"[\d+*-]\S* \d+$")


def repeat(shape: str, form: str, times: int, directory: Path) -> None:
    """Enrich one rollout some times: what is profiled."""
    rollout = generate(shape, directory)
    body = rollout.result_json()
    for _ in range(times):
        if form == "dict":
            ours.as_dict(rollout)(rollout.fresh_result())
        else:
            ours.as_json(rollout, "full" if form == "bytes" else form)(body)


def counted(shape: str, form: str, times: int, directory: Path) -> tuple[Counts, Counts]:
    """Return instructions by function: with what it calls, and by itself."""
    out = directory / f"callgrind.{times}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable]
    command += [__file__, shape, form, "--times", str(times)]
    subprocess.run(command, check=True, capture_output=True)
    names: dict[str, str] = {}
    function, is_call = "", False
    whole, own = Counts(), Counts()
    for line in out.read_text().splitlines():
        if named := NAMED.match(line):
            key, number, name = named.groups()
            if name:
                names[number] = name
            if key == "fn":
                function = names[number]
        elif line.startswith("calls="):
            is_call = True  # the next line says what the calls took
        elif COST.match(line):
            cost = int(line.split()[-1])
            whole[function] += cost
            if not is_call:
                own[function] += cost
            is_call = False
    return whole, own


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a rollout's instructions by function.")
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--top", type=int, default=40, help="functions to print")
    parser.add_argument("--times", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if arguments.times is not None:
            repeat(arguments.shape, arguments.form, arguments.times, directory)
            return
        few = counted(arguments.shape, arguments.form, FEW, directory)
        many = counted(arguments.shape, arguments.form, MANY, directory)
    for title, less, more in zip(("with what it calls", "by itself"), few, many, strict=True):
        each = {key: (more[key] - less[key]) / (MANY - FEW) / 1e3 for key in more}
        rows = sorted(each.items(), key=lambda pair: -pair[1])[: arguments.top]
        head = [f"function, {title}", "thousand instructions a rollout"]
        print(table(head, [[key, f"{value:.1f}"] for key, value in rows]), end="\n\n")


if __name__ == "__main__":
    main()
