"""Enrich many results: one budget of waiting, one outcome an item, in order."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rollfold import _core
from rollfold.dialects.anthropic import convert_batch
from rollfold.enrich import enrich_one
from rollfold.rollout import Dirs, Form, JsonItem, Options, Result, Row, check_form, json_item, note

_BATCH = 64

Item = tuple[Row, Any] | Mapping[str, Any]


def _unpack(item: Item) -> tuple[Row, Any, float | None, float | None]:
    if isinstance(item, Mapping):
        return item["row"], item["result"], item.get("rollout_latency_ms"), item.get("not_before")
    row, result = item
    return row, result, None, None


def enrich_run_results_json(  # noqa: D417 -- the rest is said where it points to
    items: Iterable[Item],
    *,
    threads: int | None = None,
    form: Form = "full",
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    delete_capture: bool = False,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Iterator[bytes | Exception]:
    """Enrich many results into JSON, in order.

    Args:
        items: `(row, result)`, or mappings with `row`, `result` and, where wanted,
            `rollout_latency_ms` and `not_before`; drawn as they are needed.
        threads: how many, 1 where it is None; they live as long as one step.
        form: and the rest: as in `enrich_run_result_json`. The whole batch waits
            `quiescence_timeout_s` at most.

    Yields:
        The JSON of each, or the exception that a row cost; the others go on.

    Raises:
        ValueError: a form or a number of threads that there is not.
    """
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    check_form(form)
    if threads is not None and threads < 1:
        raise ValueError(f"threads: must be 1 or more, not {threads}")
    return _results_json(items, options, threads or 1, form)


class _Source:
    """The caller's items, drawn in batches; an error of its own comes after what it gave."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self.error: Exception | None = None

    def draw(self, count: int) -> Iterator[Item]:
        """Draw up to `count` items."""
        for _ in range(count if self.error is None else 0):
            try:
                yield next(self._items)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 -- raised when its turn has come
                self.error = error
                return


def _results_json(
    items: Iterable[Item], options: Options, threads: int, form: Form
) -> Iterator[bytes | Exception]:
    source = _Source(items)
    waiting: deque[JsonItem | Exception] = deque()
    left = options.quiescence_s
    while True:
        for item in source.draw(_BATCH - len(waiting)):
            try:
                row, result, latency_ms, not_before = _unpack(item)
                waiting.append(json_item(options, row, result, latency_ms, not_before))
            except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
                waiting.append(error)
        if not waiting:
            break
        if isinstance(waiting[0], Exception):
            yield waiting.popleft()  # type: ignore[misc]
            continue
        batch: list[JsonItem] = []
        for entry in waiting:
            if isinstance(entry, Exception):
                break
            batch.append(entry)
        jobs = [entry.job for entry in batch]
        outcomes = _core.fold_batch(jobs, form, threads, convert_batch, left)
        for entry, outcome in zip(batch, outcomes, strict=False):
            waiting.popleft()
            if isinstance(outcome, Exception):
                yield outcome
                continue
            text, report = outcome
            left = max(left - report["waited_s"], 0.0)
            if entry.rollout_id is not None:
                note(report, entry.rollout_id)
            yield text
    if source.error is not None:
        raise source.error


def enrich_run_results(  # noqa: D417 -- the rest is said where it points to
    items: Iterable[Item],
    *,
    threads: int | None = None,
    capture_dirs: Dirs | None,
    observability_enabled: bool,
    include_payloads: bool = True,
    delete_capture: bool = False,
    quiescence_timeout_s: float = 2.0,
    foreign_settle_s: float = 0.0,
) -> Iterator[Result | Exception]:
    """Enrich many results in place, in order.

    Args:
        items: as in `enrich_run_results_json`, the results dicts.
        threads: accepted for symmetry: building objects holds the interpreter, so this
            form works on one.
        capture_dirs: and the rest: as in `enrich_run_result`. The whole batch waits
            `quiescence_timeout_s` at most.

    Yields:
        Each result, or the exception that a row cost; the others go on.
    """
    del threads
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    return _results(items, options)


def _results(items: Iterable[Item], options: Options) -> Iterator[Result | Exception]:
    left = options.quiescence_s
    for item in items:
        try:
            row, result, latency_ms, not_before = _unpack(item)
            waited = enrich_one(options, row, result, latency_ms, not_before, wait_s=left)
        except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
            yield error
            continue
        left = max(left - waited, 0.0)
        yield result
