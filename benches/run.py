"""Rollfold's own figures on the shapes: `make bench`, or one question at a time.

    python benches/run.py                 # everything, some minutes
    python benches/run.py forms threads   # these sections alone

Each section prints a table. A section whose functions this version lacks says so.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isolated
import ours
import rollfold
from figures import Sample, machine, measure, milliseconds, refuse_debug_build, table
from shapes import SHAPES, Rollout, generate

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = ("enrich_run_result", "enrich_run_result_json")
BATCH = ("enrich_run_results_json",)


def megabytes(size: float) -> str:
    return f"{size / 1e6:.2f}"


def forms(directory: Path) -> str:
    """Time every form, per rollout, one thread; the packed record's size against the full one's."""
    rows = []
    for shape in [*SHAPES, "marked"]:
        rollout = generate(shape, directory / shape)
        body = rollout.result_json()
        full = ours.as_json(rollout, "full")
        packed = ours.as_json(rollout, "packed")
        as_dict = measure(ours.as_dict(rollout), prepare=rollout.fresh_result)
        as_bytes = measure(full, prepare=lambda body=body: body)
        as_packed = measure(packed, prepare=lambda body=body: body)
        size, small = len(full(body)), len(packed(body))
        rows.append(
            [
                shape,
                rollout.calls,
                megabytes(rollout.capture_bytes),
                as_dict,
                as_bytes,
                as_packed,
                f"{rollout.capture_bytes / as_bytes.median / 1e6:.0f}",
                megabytes(size),
                megabytes(small),
                f"1/{size / small:.1f}",
            ]
        )
    head = ["shape", "calls", "MB", "dict, ms", "bytes, ms", "packed, ms", "MB/s (bytes)"]
    return table([*head, "full, MB", "packed, MB", "packed/full"], rows)


def threads(directory: Path) -> str:
    """Time a batch with one and with two threads, per rollout."""
    rows = []
    for shape, number in (("small", 64), ("chat", 32), ("tokens", 16), ("agentic", 16), ("swe", 6)):
        rollouts = [generate(shape, directory / shape, task=task) for task in range(number)]
        bodies = [rollout.result_json() for rollout in rollouts]
        for form in ("full", "packed"):
            one, two = (
                measure(
                    lambda _, form=form, count=count, rollouts=rollouts, bodies=bodies: [
                        len(record)
                        for record in ours.batch(rollouts, bodies, form=form, threads=count)
                    ]
                ).divided(number)
                for count in (1, 2)
            )
            rows.append([shape, form, number, one, two, f"{one.median / two.median:.2f}x"])
    return table(["shape", "form", "rollouts", "1 thread, ms", "2 threads, ms", "gain"], rows)


def memory(directory: Path) -> str:
    """Measure the peak memory of a batch in a process of its own, above what it had before the batch."""
    rows = []
    for shape, number in (("agentic", 32), ("swe", 8)):
        rollouts = [generate(shape, directory / shape, task=task) for task in range(number)]
        largest = max(rollout.capture_bytes for rollout in rollouts)
        for form in ("full", "packed"):
            for count in (1, 2):
                peak, output = isolated.batch_peak(rollouts, form, count)
                allowed = 3 * largest * count + output
                rows.append(
                    [
                        shape,
                        form,
                        number,
                        count,
                        megabytes(largest),
                        megabytes(output),
                        megabytes(peak),
                        megabytes(allowed),
                    ]
                )
    head = ["shape", "form", "rollouts", "threads", "largest capture, MB"]
    return table([*head, "output, MB", "peak, MB", "3 x largest x threads + output, MB"], rows)


def linearity(directory: Path) -> str:
    """Set time against the capture's size, 1x to 64x; and along one history that only grows."""
    rows = []
    for shape, scales in (
        ("agentic", (1, 4, 16, 64)),
        ("tokens", (1, 4, 16, 64)),
        ("small", (1, 4, 16, 64)),
        ("long_history", (1, 2, 4, 8)),
    ):
        first = 0.0
        for scale in scales:
            rollout = generate(shape, directory / shape, scale=scale)
            body = rollout.result_json()
            sample = measure(
                ours.as_json(rollout, "packed"), prepare=lambda body=body: body, least=3
            )
            each = sample.median / rollout.capture_bytes
            first = first or each
            columns = [shape, f"{scale}x", megabytes(rollout.capture_bytes), sample]
            rows.append([*columns, f"{each * 1e9:.3f}", f"{each / first:.2f}"])
    return table(["shape", "scale", "MB", "packed, ms", "ns/byte", "to the first"], rows)


async def lateness(work: Callable[[], Any]) -> list[float]:
    """Return by how many seconds each tick of a 1 ms ticker was late while `work` ran."""
    loop = asyncio.get_running_loop()
    late: list[float] = []
    done = asyncio.ensure_future(work())
    while not done.done():
        due = loop.time() + 0.001
        await asyncio.sleep(0.001)
        late.append(loop.time() - due)
    await done
    return late


def ticker(directory: Path) -> str:
    """Measure how late a 1 ms ticker is while 64 swe rollouts are enriched in the same event loop."""
    rollouts = [generate("swe", directory / "swe", task=task) for task in range(8)] * 8
    bodies = [rollout.result_json() for rollout in rollouts]

    async def idle() -> None:
        await asyncio.sleep(2)

    async def in_threads() -> None:
        # Two at a time: more would only hold more 50 MB records at once.
        slots = asyncio.Semaphore(2)

        async def one(rollout: Rollout, body: bytes) -> None:
            async with slots:
                await asyncio.to_thread(lambda: len(ours.as_json(rollout, "full")(body)))

        await asyncio.gather(*map(one, rollouts, bodies))

    async def one_by_one() -> None:
        for rollout, body in zip(rollouts, bodies, strict=True):
            await asyncio.to_thread(
                lambda rollout=rollout, body=body: len(ours.as_json(rollout, "full")(body))
            )

    async def in_batch() -> None:
        await asyncio.to_thread(
            lambda: sum(map(len, ours.batch(rollouts, bodies, form="full", threads=2)))
        )

    async def as_dicts() -> None:
        slots = asyncio.Semaphore(2)

        async def one(rollout: Rollout) -> None:
            async with slots:
                result = await asyncio.to_thread(rollout.fresh_result)
                await rollfold.enrich_run_result_async(rollout.row, result, **ours.options(rollout))

        await asyncio.gather(*map(one, rollouts))

    ways: dict[str, Callable[[], Any]] = {"nothing (the machine itself)": idle}
    ways["bytes, to_thread, 1 at a time"] = one_by_one
    ways["bytes, to_thread, 2 at a time"] = in_threads
    if not ours.lacks(*BATCH):
        ways["bytes, a batch with 2 threads in a thread"] = in_batch
    if not ours.lacks("enrich_run_result_async"):
        ways["dict, enrich_run_result_async, 2 at a time"] = as_dicts
    rows = []
    for name, work in ways.items():
        late = sorted(asyncio.run(lateness(work)))
        columns = [late[len(late) // 2], late[len(late) * 99 // 100], late[-1]]
        rows.append([name, len(late), *map(milliseconds, columns)])
    return table(["meanwhile", "ticks", "median, ms", "99 of 100 within, ms", "worst, ms"], rows)


def file_calls(directory: Path) -> str:
    """Count the file-system calls per rollout (strace), without deletion: the slope from 4 to 36."""
    rollouts = [generate("small", directory / "small", task=task) for task in range(36)]
    rows = []
    for way in ("dict", "bytes", "batch"):
        few, many = (isolated.file_calls(rollouts[:number], way) for number in (4, 36))
        if few is None or many is None:
            return "strace is not installed here"
        each = {name: (many[name] - few.get(name, 0)) / 32 for name in many}
        named = ", ".join(f"{name} {count:g}" for name, count in sorted(each.items()) if count)
        rows.append([way, f"{sum(each.values()):g}", named])
    return table(["way", "calls a rollout", "which"], rows)


def waiting(directory: Path) -> str:
    """Measure what the async form adds to the plain one with nothing in flight."""
    rows = []
    for shape in ("small", "chat"):
        rollout = generate(shape, directory / shape)

        def plain(rollout: Rollout = rollout) -> Sample:
            return measure(ours.as_dict(rollout), prepare=rollout.fresh_result)

        async def asynchronous(rollout: Rollout = rollout) -> Sample:
            loop = asyncio.get_running_loop()
            seconds = []
            for _ in range(200):
                result = rollout.fresh_result()
                start = loop.time()
                await rollfold.enrich_run_result_async(rollout.row, result, **ours.options(rollout))
                seconds.append(loop.time() - start)
            return Sample(tuple(seconds[1:]))

        one, other = plain(), asyncio.run(asynchronous())
        rows.append([shape, one, other, milliseconds(other.median - one.median)])
    return table(["shape", "plain, ms", "async, ms", "added, ms"], rows)


def faults(directory: Path) -> str:
    """Try the extremes: a picture of 1 MB in 30 turns, 45,000 calls in one rollout."""
    rows = []
    for shape, scales in (("data_url", (1, 2)), ("many_calls", (1,))):
        for scale in scales:
            rollout = generate(shape, directory / shape, scale=scale)
            for way in ("dict", "dict without payloads", "packed"):
                seconds, peak = isolated.single(rollout, way)
                columns = [shape, rollout.calls, megabytes(rollout.capture_bytes), way]
                rows.append([*columns, milliseconds(seconds), megabytes(peak)])
    return table(["shape", "calls", "capture, MB", "way", "ms", "peak memory, MB"], rows)


SECTIONS: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "forms": (forms, ONE),
    "threads": (threads, BATCH),
    "memory": (memory, BATCH),
    "linearity": (linearity, ONE),
    "ticker": (ticker, ONE),
    "file_calls": (file_calls, (*ONE, *BATCH)),
    "waiting": (waiting, ("enrich_run_result_async",)),
    "faults": (faults, ONE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Rollfold on the shapes.")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    refuse_debug_build(rollfold.build_info["profile"])
    print(f"Machine: {machine()}")
    print("Times: median (lowest-highest) in milliseconds.")
    for name in arguments.sections or SECTIONS:
        section, needed = SECTIONS[name]
        title = (section.__doc__ or "").strip()
        print(f"\n## {name}: {title}\n")
        if missing := ours.lacks(*needed):
            print(missing)
            continue
        with tempfile.TemporaryDirectory() as directory:
            print(section(Path(directory)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
