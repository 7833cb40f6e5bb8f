"""What capturing costs: the same server with and without it, side by side.

`make bench-capture`, or `python benches/capture_cost.py [--calls N] [--directory D]`. The
client is a process of its own; the servers' CPU and memory are read from the servers.
nemo-gym's middleware is a column where its environment can be made (`peer_venv.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
CHAT = "/v1/chat/completions"
SMALL = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "question " * 215}]}
).encode()
"""With the server's answer, an exchange of some 4 KB."""

WIDTH = 100
STREAMS = 40
MEGABYTES = {
    "560 events": {"events": 560, "size": 1800, "pause_s": 0.005},
    "one event, whole": {"events": 1, "size": 1_000_000, "pause_s": 0.5},
    "one event, in 16 KB": {"events": 1, "size": 1_000_000, "pause_s": 0.5, "chunk": 16_384},
}
"""Streams of 1 MB, as the server is asked for them."""

DIALECTS = {"chat": CHAT, "messages": "/v1/messages", "responses": "/v1/responses"}
SHAPES = [(shape, dialect) for shape in MEGABYTES for dialect in DIALECTS]


@dataclass
class Kind:
    """A server to measure: its name, its interpreter, its arguments."""

    name: str
    python: str
    arguments: list[str]
    figures: dict[str, str] = field(default_factory=dict)


class Connection:
    """One kept-open HTTP/1.1 connection, with as little Python as will do."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, path: str, body: bytes) -> None:
        """Send a POST."""
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> bytes:
        """Return the body of an answer that says its length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:")
        return await self.reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0]))

    async def events(self) -> tuple[float, int]:
        """Return when the first chunk came, and how many bytes there were in all."""
        await self.reader.readuntil(b"\r\n\r\n")
        first, size = 0.0, 0
        while True:
            line = await self.reader.readline()
            first = first or time.perf_counter()
            count = int(line, 16)
            size += len(await self.reader.readexactly(count + 2))
            if count == 0:
                return first, size

    def close(self) -> None:
        """Disconnect."""
        self.writer.close()


async def stats(port: int) -> dict[str, Any]:
    """Return what the server has used so far."""
    connection = Connection(port)
    await connection.open()
    await connection.send("/stats", b"")
    said = json.loads(await connection.answer())
    connection.close()
    return dict(said)


async def load(port: int, calls: int) -> list[float]:
    """Make `calls` small calls, 100 at a time; returns their latencies in seconds."""
    latencies = []

    async def caller(number: int) -> None:
        connection = Connection(port)
        await connection.open()
        for _ in range(calls // WIDTH):
            started = time.perf_counter()
            await connection.send(f"/ng-rollout/{number}-0{CHAT}", SMALL)
            await connection.answer()
            latencies.append(time.perf_counter() - started)
        connection.close()

    await asyncio.gather(*(caller(number) for number in range(WIDTH)))
    return latencies


async def first_chunks(port: int, count: int) -> list[float]:
    """Make short streams one after the other; returns the times to their first chunks."""
    found = []
    body = json.dumps({"model": "m", "events": 3, "size": 20, "pause_s": 0.002}).encode()
    connection = Connection(port)
    await connection.open()
    for number in range(count):
        started = time.perf_counter()
        await connection.send(f"/ng-rollout/{number % 20}-1{CHAT}", body)
        first, _ = await connection.events()
        found.append(first - started)
    connection.close()
    return found


async def megabytes(port: int, shape: str, dialect: str) -> float:
    """Hold streams of 1 MB at once; returns the peak KB that each added."""
    body = json.dumps({"model": "m"} | MEGABYTES[shape]).encode()
    before = (await stats(port))["rss_kb"]

    async def one(number: int) -> None:
        connection = Connection(port)
        await connection.open()
        await connection.send(f"/ng-rollout/{number}-2{DIALECTS[dialect]}", body)
        await connection.events()
        connection.close()

    await asyncio.gather(*(one(number) for number in range(STREAMS)))
    return float((await stats(port))["peak_kb"] - before) / STREAMS


@contextlib.contextmanager
def running(kind: Kind, directory: Path) -> Iterator[int]:
    """Run the server; gives its port."""
    name, *rest = kind.arguments
    process = subprocess.Popen(
        [kind.python, HERE / "capture_server.py", name, directory, *rest],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{kind.name}: the server did not start")
        yield int(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def serve_and_measure(kind: Kind, directory: Path, calls: int) -> dict[str, float]:
    """Return a server's figures: milliseconds, KB."""

    async def all_of_it(port: int) -> dict[str, float]:
        await load(port, WIDTH * 5)
        before = (await stats(port))["cpu_s"]
        started = time.perf_counter()
        latencies = sorted(await load(port, calls))
        elapsed = time.perf_counter() - started
        cpu = (await stats(port))["cpu_s"] - before
        first = await first_chunks(port, 300)
        return {
            "median": statistics.median(latencies) * 1e3,
            "p99": latencies[int(len(latencies) * 0.99)] * 1e3,
            "rate": len(latencies) / elapsed,
            "cpu": cpu / len(latencies) * 1e3,
            "first": statistics.median(first) * 1e3,
        }

    with running(kind, directory) as port:
        return asyncio.run(all_of_it(port))


def memory(kinds: list[Kind], place: Path) -> dict[str, dict[tuple[str, str], float]]:
    """Return the KB that a stream of 1 MB of each shape adds, each in a new server."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for kind in kinds:
        found[kind.name] = {}
        for number, (shape, dialect) in enumerate(SHAPES):
            directory = place / f"m{number}-{kind.name}"
            directory.mkdir(mode=0o700)
            with running(kind, directory) as port:

                async def measured(
                    port: int = port, shape: str = shape, dialect: str = dialect
                ) -> float:
                    await load(port, WIDTH)
                    return await megabytes(port, shape, dialect)

                found[kind.name][shape, dialect] = asyncio.run(measured())
    return found


def written(directory: Path, durability: str, seconds: float = 2.0) -> float:
    """Return the records of 4 KB that one process with 8 threads writes a second."""
    from rollfold._core import CaptureWriter  # noqa: PLC0415

    writer = CaptureWriter(directory, durability=durability)
    line = b'{"model_call_id":"' + b"x" * 4000 + b'"}'
    counts = [0] * 8
    end = time.perf_counter() + seconds

    def write(thread: int) -> None:
        while time.perf_counter() < end:
            writer.append(f"{thread}-{counts[thread] % 8}", line)
            counts[thread] += 1

    started = time.perf_counter()
    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.sync()
    return sum(counts) / (time.perf_counter() - started)


PEER_WRITES = """
import sys, threading, time
from nemo_gym.base_responses_api_model import CaptureStore
store = CaptureStore(sys.argv[1])
exchange = {"model_call_id": "x" * 4000}
counts, end = [0] * 8, time.perf_counter() + 2.0
def write(thread):
    while time.perf_counter() < end:
        store.record(f"{thread}-{counts[thread] % 8}", exchange)
        counts[thread] += 1
started = time.perf_counter()
threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(counts) / (time.perf_counter() - started))
"""


def find_peer() -> str | None:
    """Return the interpreter of the peer's environment, made if need be."""
    import peer_venv  # noqa: PLC0415

    try:
        python = peer_venv.prepare()
        server = ("import uvicorn", "uvicorn")
        if subprocess.run([python, "-c", server[0]], check=False, capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "-q", server[1]], check=True)
    except (peer_venv.PeerUnavailableError, subprocess.CalledProcessError) as error:
        print(f"without the peer: {error}", file=sys.stderr)
        return None
    return str(python)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where captures go; a real disk")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--memory", action="store_true", help="the table of memory alone")
    options = parser.parse_args()
    peer = None if options.no_peer else find_peer()
    ours = sys.executable
    kinds = [
        Kind("plain", ours, ["plain"]),
        Kind("rollfold, none", ours, ["rollfold", "none"]),
        Kind("rollfold, batch", ours, ["rollfold", "batch"]),
        Kind("rollfold, record", ours, ["rollfold", "record"]),
    ]
    if peer:
        kinds += [Kind("plain, 3.13", peer, ["plain"]), Kind("nemo-gym, 3.13", peer, ["peer"])]
    results: dict[str, list[dict[str, float]]] = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        held = memory(kinds, Path(place))
        if options.memory:
            report_memory(held)
            return
        # Rounds in turn, so that a busy moment of the machine meets every kind.
        for number in range(options.rounds):
            for kind in kinds:
                directory = Path(place) / f"{number}-{kind.name}"
                directory.mkdir(mode=0o700)
                results[kind.name].append(serve_and_measure(kind, directory, options.calls))
        rates = {name: written(Path(place) / f"w-{name}", name) for name in DURABILITIES}
        if peer:
            done = subprocess.run(
                [peer, "-c", PEER_WRITES, Path(place) / "w-peer"],
                capture_output=True,
                text=True,
                check=True,
            )
            rates["nemo-gym"] = float(done.stdout)
    report(results, rates, options)
    report_memory(held)


def rollfold_profile() -> str:
    """Return how the extension was built."""
    from rollfold import _core  # noqa: PLC0415

    return _core.build_profile


DURABILITIES = ("none", "batch", "record")


def report(
    results: dict[str, list[dict[str, float]]], rates: dict[str, float], options: argparse.Namespace
) -> None:
    """Print the tables: medians over the rounds, with their range for the CPU."""
    print(f"{figures.machine()}; {rollfold_profile()} build")
    print(f"{options.rounds} rounds of {options.calls} calls of 4 KB, {WIDTH} at a time;")
    print("medians over the rounds\n")
    print(
        "| server | median ms | p99 ms | calls/s | CPU ms a call | added CPU ms "
        "| first chunk ms | added ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, rounds in results.items():
        base = results["plain, 3.13" if "3.13" in name else "plain"]

        def middle(key: str, of: list[dict[str, float]] = rounds) -> float:
            return statistics.median(found[key] for found in of)

        cpu = [f"{found['cpu']:.2f}" for found in sorted(rounds, key=lambda r: r["cpu"])]
        print(
            f"| {name} | {middle('median'):.1f} | {middle('p99'):.1f} | {middle('rate'):.0f} "
            f"| {middle('cpu'):.3f} ({cpu[0]}-{cpu[-1]}) | {middle('cpu') - middle('cpu', base):+.3f} "
            f"| {middle('first'):.3f} | {middle('first') - middle('first', base):+.3f} |"
        )
    print("\n| writer, 8 threads, 64 rollouts | records/s |")
    print("|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} |")


def report_memory(held: dict[str, dict[tuple[str, str], float]]) -> None:
    """Print what each server holds more than the plain one, a stream."""
    print(f"\n{STREAMS} streams of 1 MB at once: KB held a stream, the plain server's taken off\n")
    print("| stream | " + " | ".join(held) + " |")
    print("|---|" + "---|" * len(held))
    for shape, dialect in SHAPES:
        row = []
        for name, found in held.items():
            base = held["plain, 3.13" if "3.13" in name else "plain"]
            row.append(
                f"{found[shape, dialect] - (base[shape, dialect] if found is not base else 0):.0f}"
            )
        print(f"| {dialect}, {shape} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
