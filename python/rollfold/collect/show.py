"""A run on the terminal: its progress while it goes on, its summary at the end."""

import sys
import time
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rollfold import extras
from rollfold.collect.summary import Summary

PLAIN_INTERVAL_S: Final = 30.0
"""Seconds between two lines of progress where there is no terminal."""

NAMES_SHOWN: Final = 5


class Progress(Protocol):
    """What follows a run."""

    def update(self, *, done: int, running: int, failed: int, mean: float | None) -> None:
        """Show where the run is; called at every outcome."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...


class Quiet:
    """Shows nothing."""

    def update(self, *, done: int, running: int, failed: int, mean: float | None) -> None:
        """Show nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        return None


class PlainLines(Quiet):
    """A line on stderr every 30 seconds and at the end.

    Args:
        total: how many there are to do; None where that is not known.
        what: what is counted.
    """

    def __init__(self, total: int | None, what: str = "rollouts") -> None:
        self._total = total
        self._what = what
        self._begun = time.monotonic()
        self._last = self._begun
        self._line = ""

    def update(self, *, done: int, running: int, failed: int, mean: float | None) -> None:
        """Show a line where it is time for one."""
        now = time.monotonic()
        rate = 60.0 * done / max(now - self._begun, 1e-9)
        of = "" if self._total is None else f"/{self._total}"
        reward = "" if mean is None else f", mean reward {mean:.3f}"
        self._line = (
            f"{done}{of} {self._what} done, {running} running, {failed} failed, "
            f"{rate:.1f} a minute{reward}"
        )
        if now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            print(self._line, file=sys.stderr, flush=True)  # noqa: T201 (it is what it is for)

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._line:
            print(self._line, file=sys.stderr, flush=True)  # noqa: T201 (it is what it is for)


class Bar(Quiet):
    """A bar of rich on stderr."""

    def __init__(self, total: int | None, what: str = "rollouts") -> None:
        progress = extras.load("rich.progress", "collect")
        console = extras.load("rich.console", "collect")
        self._begun = time.monotonic()
        self._bar = progress.Progress(
            progress.TextColumn("{task.completed}/{task.total} " + what),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[note]}"),
            progress.TimeElapsedColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=total, note="")

    def update(self, *, done: int, running: int, failed: int, mean: float | None) -> None:
        """Move the bar."""
        rate = 60.0 * done / max(time.monotonic() - self._begun, 1e-9)
        note = f"{running} running, {failed} failed, {rate:.0f} a minute"
        if mean is not None:
            note += f", mean reward {mean:.3f}"
        self._bar.update(self._task, completed=done, note=note)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


def progress_for(total: int | None, what: str = "rollouts") -> Progress:
    """Give a bar where stderr is a terminal, else plain lines."""
    return Bar(total, what) if sys.stderr.isatty() else PlainLines(total, what)


def print_summary(summary: Summary, width: int | None = None) -> None:
    """Print the table of a run, an agent a column, and what else there is to say."""
    table_module = extras.load("rich.table", "collect")
    console_module = extras.load("rich.console", "collect")
    console = console_module.Console(width=width, soft_wrap=False, highlight=False)
    whole = summary.as_dict()
    table = table_module.Table(title="Rollouts by agent", title_justify="left")
    table.add_column("")
    agents: dict[str, dict[str, Any]] = whole["agents"]
    for name in agents:
        table.add_column(name, justify="right", overflow="fold")
    for label, cells in _table_rows(list(agents.values())):
        table.add_row(label, *cells)
    console.print(table)
    if summary.succeeded and not summary.with_calls:
        console.print(f"0 of {summary.succeeded} rollouts have a recorded model call")
    if summary.unclaimed:
        names = ", ".join(summary.unclaimed[:NAMES_SHOWN])
        more = " ..." if len(summary.unclaimed) > NAMES_SHOWN else ""
        console.print(f"{len(summary.unclaimed)} capture files nobody claimed: {names}{more}")
    if summary.enrich_errors:
        console.print(f"{summary.enrich_errors} results could not be enriched and are as they came")
    if summary.captures_kept:
        console.print(f"{summary.captures_kept} captures were kept, see the log for why")
    for note in summary.notes:
        console.print(note)


def _table_rows(agents: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    rows = [("rollouts", [str(agent["rollouts"]) for agent in agents])]
    for group, prefix in (("failures", "failed: "), ("omitted", "")):
        codes = sorted({code for agent in agents for code in agent[group]})
        rows += [
            (f"{prefix}{code}", [str(agent[group].get(code, 0)) for agent in agents])
            for code in codes
        ]
    rows.append(("reward, mean", [_decimal(agent["reward_mean"]) for agent in agents]))
    ks = sorted({int(k) for agent in agents for k in agent["pass_at_k"]})
    rows += [
        (
            f"pass@{k}",
            [_decimal(agent["pass_at_k"].get(str(k), {}).get("value")) for agent in agents],
        )
        for k in ks
    ]
    for label, key in (
        ("with calls", "rollouts_with_calls"),
        ("calls", "calls"),
        ("turns", "turns"),
    ):
        rows.append((label, [str(agent[key]) for agent in agents]))
    for name in ("tokens_in", "tokens_out", "tokens_reasoning", "cached_tokens"):
        if any(name in agent["tokens"] for agent in agents):
            cells = [_tokens(agent["tokens"].get(name), agent["calls"]) for agent in agents]
            rows.append((name.replace("_", " "), cells))
    for percent in ("p50", "p90", "p99"):
        if any(agent["latency_ms"] for agent in agents):
            cells = [_seconds(agent["latency_ms"].get(percent)) for agent in agents]
            rows.append((f"latency {percent}", cells))
    codes = sorted({code for agent in agents for code in agent["gaps"]})
    rows += [(f"gap: {c}", [str(agent["gaps"].get(c, 0)) for agent in agents]) for c in codes]
    return rows


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:.2f} s"


def _tokens(known: dict[str, int] | None, calls: int) -> str:
    """Give a sum, and of how many calls it is where that is not all."""
    if known is None:
        return "-"
    partly = "" if known["calls"] == calls else f" ({known['calls']} of {calls} calls)"
    return f"{known['sum']:,}{partly}"
