"""The calls of Rollfold that the benches time, one per form of the record."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rollfold
from rollfold import enrich

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shapes import Rollout

OPTIONS: dict[str, Any] = {"observability_enabled": True, "rollout_latency_ms": 1234.5}


def options(rollout: Rollout) -> dict[str, Any]:
    """Return the keyword arguments of one enrichment."""
    return {**OPTIONS, "capture_dirs": [rollout.capture_dir]}


def as_dict(
    rollout: Rollout, *, include_payloads: bool = True
) -> Callable[[dict[str, Any]], object]:
    """Enrich a result of its own in place."""
    return lambda result: rollfold.enrich_run_result(
        rollout.row, result, include_payloads=include_payloads, **options(rollout)
    )


def as_json(rollout: Rollout, form: str) -> Callable[[bytes], bytes]:
    """Enrich a result's body; `form` is `full` or `packed`."""
    return lambda body: rollfold.enrich_run_result_json(
        rollout.row, body, form=form, **options(rollout)
    )


@contextmanager
def converters_timed() -> Iterator[list[float]]:
    """Give a list that gets the seconds of each call into the Messages converters meanwhile."""
    spent: list[float] = []

    def timed(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(jobs: Any) -> Any:
            start = time.perf_counter()
            outcomes = convert(jobs)
            spent.append(time.perf_counter() - start)
            return outcomes

        return run

    names = ("convert_batch", "convert_batch_json")
    kept = {name: getattr(enrich, name) for name in names}
    try:
        for name, convert in kept.items():
            setattr(enrich, name, timed(convert))
        yield spent
    finally:
        for name, convert in kept.items():
            setattr(enrich, name, convert)


def batch(
    rollouts: Sequence[Rollout], bodies: Sequence[bytes], *, form: str, threads: int
) -> Iterator[Any]:
    """Enrich the bodies of several rollouts of one directory."""
    items = [
        {"row": rollout.row, "result": body, "rollout_latency_ms": 1234.5}
        for rollout, body in zip(rollouts, bodies, strict=True)
    ]
    return iter(
        rollfold.enrich_run_results_json(
            items,
            form=form,
            threads=threads,
            capture_dirs=[rollouts[0].capture_dir],
            observability_enabled=True,
        )
    )


def lacks(*names: str) -> str | None:
    """Say which of the functions this version of Rollfold does not have, if any."""
    missing = [name for name in names if not hasattr(rollfold, name)]
    return f"this version has no {', '.join(missing)}" if missing else None
