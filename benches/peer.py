"""Rollfold and nemo-gym 0.7.0 on the same captures, side by side, every figure from one run.

    make bench-peer

Per shape the peer's own steps run on its own Python (merge, trajectory, perf; `orjson.dumps` of
the record where we give bytes) and ours, in turns, then the least that the machine can do. One
thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import ours
import peer_venv
import rollfold
from figures import Sample, lower_bounds, machine, measure, milliseconds, refuse_debug_build, table
from shapes import SHAPES, Rollout, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLOOR_AND_AIM = {
    "dict": {"small": (8, 12), "chat": (12, 18), "tokens": (2.5, 4), "agentic": (12, 25), "swe": (30, 50)},
    "bytes": {"small": (10, 15), "chat": (15, 25), "tokens": (8, 20), "agentic": (12, 25), "swe": (15, 30)},
    "packed": {"small": (10, 15), "chat": (18, 30), "tokens": (8, 20), "agentic": (15, 35), "swe": (35, 60)},
}  # fmt: skip
"""How many times the peer's speed is asked for, at least and at best."""

STATED_FACTORS = {"small": 9.3, "chat": 4.6, "tokens": 2.9, "agentic": 4.4, "swe": 6.1}
"""The peer's steps with dumps over `orjson.loads` and `dumps` of the capture's lines, as measured
on CPython 3.13 elsewhere; used where the peer cannot run."""

ROUNDS = 3
"""The peer and ours take turns this often: a machine that others share changes its pace, and so
both have the same share of its good and bad times."""

REPEATS = {"small": 200, "chat": 60, "tokens": 40, "agentic": 25, "streamed": 25, "swe": 5}
CONVERTED = 15
"""Repeats in which the converters' time is taken, after those that give our figure."""

NEEDED = ("enrich_run_result", "enrich_run_result_json")


@dataclass(frozen=True)
class Peer:
    """What the peer took for one shape; no dict figure where it was only estimated."""

    as_dict: Sample | None
    as_bytes: Sample
    turns: int | None


def run_peer(python: Path, rollout: Rollout, repeats: int) -> Peer:
    manifest = [
        {
            "shape": rollout.shape,
            "capture_dir": str(rollout.capture_dir),
            "row": rollout.row,
            "result": rollout.result,
            "repeats": repeats,
        }
    ]
    done = subprocess.run(
        [python, Path(__file__).with_name("peer_steps.py")],
        input=json.dumps(manifest).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    timing = json.loads(done.stdout)["timings"][0]
    return Peer(Sample(tuple(timing["dict"])), Sample(tuple(timing["bytes"])), timing["turns"])


def merged(peers: Sequence[Peer]) -> Peer:
    """Return what the peer took in all rounds."""
    whole = peers[0]
    for peer in peers[1:]:
        as_dict = whole.as_dict + peer.as_dict if whole.as_dict and peer.as_dict else None
        whole = Peer(as_dict, whole.as_bytes + peer.as_bytes, peer.turns)
    return whole


def loads_and_dumps(rollout: Rollout) -> Sample:
    """Time `orjson.loads` and `orjson.dumps` of the capture's own lines."""
    lines = rollout.capture_file.read_bytes().splitlines()
    return measure(lambda _: [len(orjson.dumps(orjson.loads(line))) for line in lines])


def share(part: Sample, whole: Sample) -> str:
    """Return a part's median and what it is of the whole's."""
    if not part.seconds:
        return ""
    return f"{milliseconds(part.median)} ({part.median / whole.median:.0%})"


def converters(action: Callable[[Any], object], prepare: Callable[[], Any]) -> Sample:
    """Time what the converters of the Messages dialect take of an action; nothing where unused."""
    seconds = []
    with ours.converters_timed() as spent:
        for _ in range(CONVERTED):
            action(prepare())
            seconds.append(sum(spent))
            spent.clear()
    return Sample(tuple(seconds) if any(seconds) else ())


def compare(rollout: Rollout, python: Path | None) -> tuple[list[list[str]], list[str]]:
    """Return the comparison's rows of one shape, and its row of lower bounds."""
    body = rollout.result_json()
    floor = loads_and_dumps(rollout)
    peers = []
    forms = {"dict": Sample(()), "bytes": Sample(()), "packed": Sample(())}
    actions: dict[str, tuple[Callable[[Any], object], Callable[[], Any]]] = {
        "dict": (ours.as_dict(rollout), rollout.fresh_result),
        "bytes": (ours.as_json(rollout, "full"), lambda: body),
        "packed": (ours.as_json(rollout, "packed"), lambda: body),
    }
    for _ in range(ROUNDS):
        if python is not None:
            peers.append(run_peer(python, rollout, max(REPEATS[rollout.shape] // ROUNDS, 2)))
        elif rollout.shape in STATED_FACTORS:
            factor = STATED_FACTORS[rollout.shape]
            estimate = Sample(tuple(value * factor for value in floor.seconds))
            peers.append(Peer(None, estimate, None))
        else:
            return [], []
        for form, (action, prepare) in actions.items():
            forms[form] += measure(action, prepare=prepare)
    peer = merged(peers)
    rows = []
    for form, sample in forms.items():
        theirs = peer.as_dict if form == "dict" else peer.as_bytes
        converted = converters(*actions[form])
        wanted = FLOOR_AND_AIM[form].get(rollout.shape)
        rows.append(
            [
                rollout.shape,
                form,
                str(theirs) if theirs else "not run",
                str(sample),
                share(converted, sample),
                f"{theirs.median / sample.median:.1f}x" if theirs else "",
                f"{wanted[0]}x, {wanted[1]}x" if wanted else "",
            ]
        )
    size = len(ours.as_json(rollout, "full")(body))
    bound = lower_bounds(rollout, size)
    limit = 2.5 * (bound["read"] + bound["utf8"] + bound["copy_touched"]) + 60e-6
    columns: list[Any] = [
        rollout.shape,
        f"{rollout.capture_bytes / 1e6:.2f}, {size / 1e6:.2f}",
        milliseconds(bound["read"]),
        milliseconds(bound["utf8"]),
        milliseconds(bound["copy_touched"]),
        milliseconds(bound["copy_fresh"]),
        milliseconds(floor.median),
        f"{peer.as_bytes.median / floor.median:.1f}",
        milliseconds(limit),
        milliseconds(forms["bytes"].median),
    ]
    return rows, columns


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare with nemo-gym 0.7.0.")
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    arguments = parser.parse_args()
    if missing := ours.lacks(*NEEDED):
        sys.exit(f"nothing to compare: {missing}")
    refuse_debug_build(rollfold.build_info["profile"])
    print(f"Machine: {machine()}\n")
    try:
        python = peer_venv.prepare()
    except peer_venv.PeerUnavailableError as error:
        python = None
        print(
            f"nemo-gym 0.7.0 was not run: {error}. Its figures are estimates: the factors over\n"
            "orjson.loads and orjson.dumps of the capture's lines that it had on CPython 3.13.\n"
        )
    rows, bounds = [], []
    with tempfile.TemporaryDirectory() as directory:
        for shape in arguments.shape or SHAPES:
            rollout = generate(shape, Path(directory) / shape)
            compared, columns = compare(rollout, python)
            rows += compared
            bounds += [columns] if columns else []
    print(
        "Per rollout, ms: median (lowest-highest); one thread. Converters: what the\n"
        "Python functions of the Messages dialect took of our time, and its share.\n"
    )
    head = ["shape", "form", "nemo-gym 0.7.0", "rollfold", "converters", "ratio", "floor, aim"]
    print(table(head, rows))
    print(
        "\nLower bounds, ms: reading the capture, checking its UTF-8, copying the full record out\n"
        "into memory used before and into fresh pages, orjson.loads and dumps of the capture's\n"
        "lines (and the peer as a multiple of it); the limit is 2.5 x (read + UTF-8 + copy into\n"
        "used memory) + 60 us.\n"
    )
    print(
        table(
            ["shape", "MB in, out", "read", "UTF-8", "copy", "copy, fresh", "orjson", "peer/orjson",
             "limit", "bytes"],
            bounds,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
