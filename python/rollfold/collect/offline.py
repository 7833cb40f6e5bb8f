"""Enrich records that are there already: a file in, a file out, one record at a time."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollfold import identity
from rollfold.collect.ledger import read_lines
from rollfold.collect.plan import InputError
from rollfold.collect.record import calls_of, decode_line, encode_line
from rollfold.collect.show import Progress, Quiet
from rollfold.collect.summary import Summary
from rollfold.dispatch.attempt import Result, is_executed, name_of
from rollfold.errors import RolloutIdError

logger = logging.getLogger("rollfold.collect")


@dataclass(frozen=True, kw_only=True)
class EnrichOptions:
    """What to enrich and how.

    Args:
        source: records, JSON lines, full or packed; a name that ends in `.zst` is a
            compressed log.
        output: written through a temporary file beside it; may be the source. None with
            `dry_run`.
        captures: capture directories.
        form: of the output's records.
        threads: that enrich at the same time; None for one a core.
        dry_run: do all of it and write nothing.
        delete_captures: remove a capture once its record is on the disk.
        observability_enabled: off withholds `ng_perf`.
        success_at: a reward at or over it is a success.
    """

    source: Path
    output: Path | None
    captures: Sequence[Path]
    form: Literal["full", "packed"] = "full"
    threads: int | None = None
    dry_run: bool = False
    delete_captures: bool = False
    observability_enabled: bool = True
    success_at: float = 1.0


class OfflineSummary(Summary):
    """A summary that also counts what could not be read.

    Args:
        success_at: a reward at or over it is a success.
    """

    def __init__(self, success_at: float = 1.0) -> None:
        super().__init__(success_at)
        self.records = 0
        self.unreadable = 0

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {**super().as_dict(), "records": self.records, "unreadable": self.unreadable}


def enrich_file(options: EnrichOptions, progress: Callable[[], Progress] = Quiet) -> OfflineSummary:
    """Enrich every record of a file.

    A line that cannot be read is counted and named; a record that cannot be enriched is
    written as it came. The order stays.

    Raises:
        InputError: the source is not there, or arguments that do not fit together.
        OSError: the output cannot be written; nothing is left of it.
    """
    if not options.source.is_file():
        raise InputError(f"{options.source}: no such file")
    if options.output is None and not options.dry_run:
        raise InputError("an output is needed (or --dry-run)")
    if options.output is not None and options.output.name.endswith(".zst"):
        raise InputError(f"{options.output}: written as lines; name it .jsonl")
    summary = OfflineSummary(options.success_at)
    claimed: set[str] = set()
    temporary = None
    if options.output is not None and not options.dry_run:
        temporary = options.output.with_name(f".{options.output.name}.{os.getpid()}.tmp")
    try:
        with progress() as shown:
            file = temporary.open("xb") if temporary is not None else None
            try:
                for record in _enriched(options, summary):
                    _claim(record, claimed)
                    if file is not None:
                        file.write(encode_line(record, options.form) + b"\n")
                    summary.add(record)
                    summary.records += 1
                    shown.update(
                        done=summary.records,
                        running=0,
                        failed=summary.enrich_errors + summary.unreadable,
                        mean=summary.reward_mean,
                    )
                if file is not None:
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                if file is not None:
                    file.close()
        if temporary is not None and options.output is not None:
            temporary.replace(options.output)
            _sync_directory(options.output.parent)
            if options.delete_captures:
                _delete(options, options.output, summary)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    summary.look_for_unclaimed(options.captures, claimed)
    return summary


def records_of(path: Path, unreadable: Callable[[str], None]) -> Iterator[Result]:
    """Read the records of a file one at a time, full, packed or a compressed log.

    Args:
        path: the file.
        unreadable: gets what cannot be read, and where.
    """
    if path.name.endswith(".zst"):
        from rollfold.log import read_log  # noqa: PLC0415 (only where there is one)

        yield from read_log(
            path,
            on_damage=lambda file, offset, _, reason: unreadable(
                f"{file}: at byte {offset}: {reason}"
            ),
        )
        return
    for number, _, record in read_lines(path, decode_line):
        if record is None:
            unreadable(f"{path}: line {number} cannot be read")
        else:
            yield record


def _enriched(options: EnrichOptions, summary: OfflineSummary) -> Iterator[Result]:
    from rollfold.enrich_many import enrich_run_results  # noqa: PLC0415 (cost at first use)

    waiting: deque[Result] = deque()

    def items() -> Iterator[dict[str, Any]]:
        def unreadable(what: str) -> None:
            summary.unreadable += 1
            summary.notes.append(what)

        for record in records_of(options.source, unreadable):
            waiting.append(record)
            yield {
                "row": record,
                "result": dict(record),
                "rollout_latency_ms": _latency(record),
            }

    for outcome in enrich_run_results(
        items(),
        threads=options.threads or len(os.sched_getaffinity(0)),
        capture_dirs=list(options.captures),
        observability_enabled=options.observability_enabled,
    ):
        record = waiting.popleft()
        if isinstance(outcome, BaseException):
            summary.enrich_errors += 1
            logger.warning("rollout %s: stays as it came: %s", name_of(record), outcome)
            yield record
        else:
            yield dict(outcome)


def _delete(options: EnrichOptions, output: Path, summary: OfflineSummary) -> None:
    """Remove the captures of records that are on the disk, as their records have them."""
    from rollfold.enrich import enrich_run_result  # noqa: PLC0415 (cost at first use)

    late = output.with_name(f"{output.stem}_late.jsonl")
    for record in records_of(output, lambda _: None):
        if not is_executed(record):
            continue
        try:
            again = dict(record)
            enrich_run_result(
                record,
                again,
                capture_dirs=list(options.captures),
                observability_enabled=options.observability_enabled,
                rollout_latency_ms=_latency(record),
                delete_capture=True,
            )
        except Exception:
            summary.captures_kept += 1
            logger.warning("rollout %s: its capture is kept", name_of(record), exc_info=True)
            continue
        if calls_of(again) != calls_of(record):
            with late.open("ab") as file:
                file.write(encode_line(again, options.form) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            summary.notes.append(f"{late}: calls of {name_of(record)} came late")


def _claim(record: Result, claimed: set[str]) -> None:
    try:
        rollout_id = identity.rollout_id(record)
    except RolloutIdError:
        return
    if rollout_id is not None:
        claimed.add(rollout_id)


def _latency(record: Result) -> float | None:
    """Give the latency that an earlier enrichment noted, so that it stays."""
    perf = record.get("ng_perf")
    value = perf.get("total_latency_ms") if isinstance(perf, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
