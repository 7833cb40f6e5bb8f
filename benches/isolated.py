"""Measurements that need a process of their own: peak memory, system calls.

The parent calls the functions; the child is this file with a plan as its argument.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ours
from shapes import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shapes import Rollout

FILE_CALLS = (
    "open,openat,creat,close,read,pread64,readv,preadv,write,pwrite64,lseek,stat,fstat,lstat,"
    "newfstatat,statx,access,faccessat,faccessat2,flock,fcntl,getdents64,rename,renameat,unlink,"
    "unlinkat,readlink,fsync,fdatasync,statfs,fstatfs"
)


def memory(field: str) -> int:
    """Return `VmRSS` (now) or `VmHWM` (the peak) of this process in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB", status, flags=re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def batch_peak(rollouts: Sequence[Rollout], form: str, threads: int) -> tuple[int, int]:
    """Return the bytes a batch needed at its peak and the bytes of its output, all kept."""
    report = _child({"do": "batch", "form": form, "threads": threads}, rollouts)
    return report["peak"], report["output"]


def single(rollout: Rollout, way: str) -> tuple[float, int]:
    """Return the seconds and the peak bytes of one enrichment."""
    report = _child({"do": "single", "way": way}, [rollout])
    return report["seconds"], report["peak"]


def file_calls(rollouts: Sequence[Rollout], way: str) -> Counter[str] | None:
    """Count the file-system calls of a process that enriches the rollouts."""
    if not shutil.which("strace"):
        return None
    with tempfile.NamedTemporaryFile(suffix=".strace") as trace:
        strace = ["strace", "-f", "-q", "-o", trace.name, "-e", f"trace={FILE_CALLS}"]
        _child({"do": "calls", "way": way}, rollouts, strace)
        text = Path(trace.name).read_text(encoding="utf-8", errors="replace")
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, flags=re.MULTILINE))


def _child(plan: dict[str, Any], rollouts: Sequence[Rollout], before: Sequence[str] = ()) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".manifest") as manifest:
        # Made here, not in the child: what a generator needs would count as the child's peak.
        manifest.write(pickle.dumps(list(rollouts)))
        manifest.flush()
        plan["manifest"] = manifest.name
        done = subprocess.run(
            [*before, sys.executable, __file__, json.dumps(plan)],
            stdout=subprocess.PIPE,
            check=True,
        )
    return json.loads(done.stdout)


def _rollouts(plan: dict[str, Any]) -> list[Rollout]:
    rollouts: list[Rollout] = pickle.loads(Path(plan["manifest"]).read_bytes())  # noqa: S301  (our own)
    return rollouts


def _batch(plan: dict[str, Any]) -> dict[str, int]:
    rollouts = _rollouts(plan)
    bodies = [rollout.result_json() for rollout in rollouts]
    with tempfile.TemporaryDirectory() as directory:
        # The code's own pages, read at its first use, are not what the batch needs.
        small = generate("small", Path(directory))
        list(ours.batch([small], [small.result_json()], form=plan["form"], threads=1))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = memory("VmRSS")
    records = list(ours.batch(rollouts, bodies, form=plan["form"], threads=plan["threads"]))
    return {"peak": memory("VmHWM") - before, "output": sum(map(len, records))}


def _single(plan: dict[str, Any]) -> dict[str, float]:
    rollout = _rollouts(plan)[0]
    way = plan["way"]
    action: Callable[[Any], object]
    if way == "packed":
        action, given = ours.as_json(rollout, "packed"), rollout.result_json()
    else:
        action = ours.as_dict(rollout, include_payloads=way == "dict")
        given = rollout.fresh_result()
    before = memory("VmRSS")
    start = time.perf_counter()
    kept = action(given)
    seconds = time.perf_counter() - start
    peak = memory("VmHWM") - before
    del kept
    return {"seconds": seconds, "peak": peak}


def _calls(plan: dict[str, Any]) -> dict[str, int]:
    rollouts = _rollouts(plan)
    if plan["way"] == "batch":
        bodies = [rollout.result_json() for rollout in rollouts]
        done = sum(1 for _ in ours.batch(rollouts, bodies, form="full", threads=1))
        return {"done": done}
    for rollout in rollouts:
        if plan["way"] == "dict":
            ours.as_dict(rollout)(rollout.fresh_result())
        else:
            ours.as_json(rollout, "full")(rollout.result_json())
    return {"done": len(rollouts)}


def main() -> None:
    plan = json.loads(sys.argv[1])
    action = {"batch": _batch, "single": _single, "calls": _calls}[plan["do"]]
    json.dump(action(plan), sys.stdout)


if __name__ == "__main__":
    main()
