"""Enrich many results: one budget of waiting, one outcome an item, in order."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rollfold import _core
from rollfold.dialects.anthropic import convert_batch_json
from rollfold.enrich import Prepared, prepare_one
from rollfold.rollout import Dirs, Form, JsonItem, Options, Result, Row, check_form, json_item, note

_BATCH = 64

Item = tuple[Row, Any] | Mapping[str, Any]


def _unpack(item: Item) -> tuple[Row, Any, float | None, float | None]:
    if isinstance(item, Mapping):
        for key in ("row", "result"):
            if key not in item:
                raise ValueError(f"item: has no {key}")
        return item["row"], item["result"], item.get("rollout_latency_ms"), item.get("not_before")
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TypeError("item: must be (row, result), or a mapping that has them")
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
            `quiescence_timeout_s` at most. With `delete_capture` draw all that there is: some
            records are made, and their captures deleted, before their turn comes.

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
    return _results_json(items, options, _checked(threads), form)


def _checked(threads: int | None) -> int:
    if threads is not None and not isinstance(threads, int):
        raise TypeError(f"threads: must be an integer, not {type(threads).__name__}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads: must be 1 or more, not {threads}")
    return threads or 1


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
        outcomes = _core.fold_batch(jobs, form, threads, convert_batch_json, left)
        for entry, outcome in zip(batch, outcomes, strict=False):
            waiting.popleft()
            if isinstance(outcome, Exception):
                yield outcome
                continue
            text, told = outcome
            left = max(left - _waited(told), 0.0)
            note(told, entry.who.rollout_id or "")
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
        threads: how many, 1 where it is None; they live as long as the iterator. Waiting,
            reading and folding go on beside each other. Objects are built by one thread at
            a time, the interpreter's: where they are most of the work (token arrays) and
            the files are at hand, more threads give little; the JSON form scales.
        capture_dirs: and the rest: as in `enrich_run_result`. The whole batch waits
            `quiescence_timeout_s` at most.

    Yields:
        Each result, or the exception that a row cost; the others go on.

    Raises:
        ValueError: a number of threads that there is not, or as `enrich_run_result`.
    """
    options = Options.of(
        capture_dirs,
        observability_enabled,
        include_payloads,
        delete_capture,
        quiescence_timeout_s,
        foreign_settle_s,
    )
    count = _checked(threads)
    return _results(items, options) if count == 1 else _results_threaded(items, options, count)


class _Budget:
    """Seconds that a batch may still wait, whichever thread does."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._lock = threading.Lock()

    def fold(self, prepared: Prepared) -> Mapping[str, Any] | None:
        """Fold one rollout within what is left, and take off what that waited."""
        with self._lock:
            left = self._left
        told = prepared.fold(left)
        with self._lock:
            self._left = max(self._left - _waited(told), 0.0)
        return told


def _waited(told: Mapping[str, Any] | None) -> float:
    return told["waited_s"] if told is not None else 0.0


def _prepare(options: Options, item: Item) -> tuple[Result, Prepared | None]:
    row, result, latency_ms, not_before = _unpack(item)
    return result, prepare_one(options, row, result, latency_ms, not_before)


def _results(items: Iterable[Item], options: Options) -> Iterator[Result | Exception]:
    budget = _Budget(options.quiescence_s)
    for item in items:
        try:
            result, prepared = _prepare(options, item)
            if prepared is not None:
                note(budget.fold(prepared), prepared.rollout_id)
        except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
            yield error
            continue
        yield result


def _results_threaded(
    items: Iterable[Item], options: Options, threads: int
) -> Iterator[Result | Exception]:
    source = _Source(items)
    budget = _Budget(options.quiescence_s)
    waiting: deque[Exception | tuple[Result, str, Future[Mapping[str, Any] | None] | None]] = (
        deque()
    )
    pool = ThreadPoolExecutor(threads, thread_name_prefix="rollfold-enrich")
    try:
        while True:
            # One more than there are threads: none is idle while a result is looked at.
            for item in source.draw(threads + 1 - len(waiting)):
                try:
                    # Here, not there: an event loop of this thread bounds the waits.
                    result, prepared = _prepare(options, item)
                except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
                    waiting.append(error)
                    continue
                if prepared is None:
                    waiting.append((result, "", None))
                    continue
                future = pool.submit(budget.fold, prepared)
                waiting.append((result, prepared.rollout_id, future))
            if not waiting:
                break
            yield _outcome(waiting.popleft())
    finally:
        # Who leaves early finds the items that were not begun as they were.
        pool.shutdown(cancel_futures=True)
    if source.error is not None:
        raise source.error


def _outcome(
    entry: Exception | tuple[Result, str, Future[Mapping[str, Any] | None] | None],
) -> Result | Exception:
    if isinstance(entry, Exception):
        return entry
    result, rollout_id, future = entry
    if future is None:
        return result
    try:
        note(future.result(), rollout_id)
    except Exception as error:  # noqa: BLE001 -- a bad row costs itself alone
        return error
    return result
