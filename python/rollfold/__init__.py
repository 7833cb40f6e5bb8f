"""Folds every captured model call into its rollout's record.

The names below are loaded when they are first used, so that importing the package costs
little and needs none of its extras.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rollfold._core import __version__, build_profile, dumps

if TYPE_CHECKING:
    from rollfold.capture import CaptureMiddleware, CaptureStore
    from rollfold.capture.store import clear_model_call_captures_for_rollouts
    from rollfold.client import AgentClient
    from rollfold.collect import CollectOptions, collect_async, latest_executed
    from rollfold.dispatch import RolloutFailedError, RowsError, run_examples, stamp_rollout_ids
    from rollfold.enrich import (
        enrich_run_result,
        enrich_run_result_async,
        enrich_run_result_json,
    )
    from rollfold.enrich_many import enrich_run_results, enrich_run_results_json
    from rollfold.errors import MissingExtraError, RollfoldError, RolloutIdError
    from rollfold.log import RolloutLog, merge_logs
    from rollfold.log_reading import read_log
    from rollfold.packed import pack, unpack
    from rollfold.rollout import stats
    from rollfold.trajectory import (
        join_model_call_observations,
        merge_model_call_capture_into_record,
    )

build_info: Final[dict[str, str]] = {"version": __version__, "profile": build_profile}
"""The version, and how the compiled part was built: `release` or `debug`."""

if build_profile == "debug":
    warnings.warn(
        "rollfold: this is a debug build, many times slower than a release build",
        RuntimeWarning,
        stacklevel=2,
    )

_PUBLIC = {
    "AgentClient": "rollfold.client",
    "CaptureMiddleware": "rollfold.capture",
    "CaptureStore": "rollfold.capture",
    "CollectOptions": "rollfold.collect",
    "MissingExtraError": "rollfold.errors",
    "RollfoldError": "rollfold.errors",
    "RolloutFailedError": "rollfold.dispatch",
    "RolloutIdError": "rollfold.errors",
    "RolloutLog": "rollfold.log",
    "RowsError": "rollfold.dispatch",
    "clear_model_call_captures_for_rollouts": "rollfold.capture.store",
    "collect_async": "rollfold.collect",
    "enrich_run_result": "rollfold.enrich",
    "enrich_run_result_async": "rollfold.enrich",
    "enrich_run_result_json": "rollfold.enrich",
    "enrich_run_results": "rollfold.enrich_many",
    "enrich_run_results_json": "rollfold.enrich_many",
    "join_model_call_observations": "rollfold.trajectory",
    "merge_model_call_capture_into_record": "rollfold.trajectory",
    "latest_executed": "rollfold.collect",
    "merge_logs": "rollfold.log",
    "pack": "rollfold.packed",
    "read_log": "rollfold.log_reading",
    "run_examples": "rollfold.dispatch",
    "stamp_rollout_ids": "rollfold.dispatch",
    "stats": "rollfold.rollout",
    "unpack": "rollfold.packed",
}
"""Public name: the module it lives in."""

__all__ = [
    "AgentClient",
    "CaptureMiddleware",
    "CaptureStore",
    "CollectOptions",
    "MissingExtraError",
    "RollfoldError",
    "RolloutFailedError",
    "RolloutIdError",
    "RolloutLog",
    "RowsError",
    "__version__",
    "build_info",
    "clear_model_call_captures_for_rollouts",
    "collect_async",
    "dumps",
    "enrich_run_result",
    "enrich_run_result_async",
    "enrich_run_result_json",
    "enrich_run_results",
    "enrich_run_results_json",
    "join_model_call_observations",
    "latest_executed",
    "merge_logs",
    "merge_model_call_capture_into_record",
    "pack",
    "read_log",
    "run_examples",
    "stamp_rollout_ids",
    "stats",
    "unpack",
]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'rollfold' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
