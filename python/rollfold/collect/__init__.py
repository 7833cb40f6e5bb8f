"""Collect rollouts: dispatch rows, come back with enriched records, lose none."""

from rollfold.collect.latest import latest_executed
from rollfold.collect.run import CollectOptions, collect, collect_async

__all__ = ["CollectOptions", "collect", "collect_async", "latest_executed"]
