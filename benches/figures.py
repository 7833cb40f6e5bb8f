"""How the benches measure and print: medians with ranges, tables, the machine."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shapes import Rollout

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Sample:
    """Seconds that repeats of one action took."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)

    def __add__(self, other: Sample) -> Sample:
        """Return the repeats of both."""
        return Sample(self.seconds + other.seconds)

    def divided(self, number: int) -> Sample:
        """Return the same for one of `number` equal parts of the action."""
        return Sample(tuple(value / number for value in self.seconds))

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        return f"{milliseconds(self.median)} ({milliseconds(low)}-{milliseconds(high)})"


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds in three digits or so."""
    value = seconds * 1e3
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def measure(
    action: Callable[[Any], object],
    *,
    prepare: Callable[[], Any] = lambda: None,
    budget_s: float = 1.0,
    least: int = 5,
    most: int = 200,
) -> Sample:
    """Time `action(prepare())` as often as `budget_s` allows, preparation left out.

    The first run warms up and does not count. What the action returns lives until its clock
    has stopped, so freeing it is not measured.
    """
    seconds: list[float] = []
    action(prepare())
    gc.collect()
    until = time.perf_counter() + budget_s
    while len(seconds) < least or (time.perf_counter() < until and len(seconds) < most):
        prepared = prepare()
        start = time.perf_counter()
        kept = action(prepared)
        seconds.append(time.perf_counter() - start)
        del kept, prepared
    return Sample(tuple(seconds))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    """Describe what the figures were measured on."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, CPython {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} when the run began"
    )


def lower_bounds(rollout: Rollout, bytes_out: int) -> dict[str, float]:
    """Measure read, UTF-8 check and copies of one rollout, in seconds (examples/bounds.rs)."""
    subprocess.run(
        ["cargo", "build", "-q", "--release", "-p", "rollfold-core", "--example", "bounds"],
        cwd=ROOT,
        check=True,
    )
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--format-version=1", "--no-deps"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    program = Path(metadata["target_directory"]) / "release" / "examples" / "bounds"
    done = subprocess.run(
        [program, rollout.capture_file, str(bytes_out)], check=True, stdout=subprocess.PIPE
    )
    bounds: dict[str, float] = json.loads(done.stdout)
    return bounds


def refuse_debug_build(profile: str) -> None:
    """End the run where the extension is a debug build: its figures would mean nothing."""
    if profile == "debug":
        sys.exit("rollfold is a debug build: run `maturin develop --release` first")
