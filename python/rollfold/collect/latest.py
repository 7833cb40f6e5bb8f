"""One record per rollout, out of several attempts."""

from collections.abc import Iterable, Mapping
from typing import Any

from rollfold import identity
from rollfold.dispatch.attempt import is_executed
from rollfold.errors import RolloutIdError


def latest_executed(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Give one record per rollout: that of its latest executed attempt (contract, section 11).

    A never-started record never hides an executed one, and a higher attempt wins; of two
    records of one attempt the later one in `records` wins. A record without a valid
    rollout id stands for itself.

    Args:
        records: results, failure records and records of omitted rollouts, in any order.

    Returns:
        The very same objects, in the order in which their rollouts first appear.
    """
    latest: dict[object, tuple[tuple[bool, int], Mapping[str, Any]]] = {}
    for number, record in enumerate(records):
        try:
            key: object = rollout_key(record)
            attempt = identity.attempt_index(record)
        except RolloutIdError:
            key, attempt = None, 0
        if key is None:
            key = number
        rank = (is_executed(record), attempt)
        known = latest.get(key)
        if known is None or rank >= known[0]:
            latest[key] = (rank, record)
    return [record for _, record in latest.values()]


def rollout_key(record: Mapping[str, Any]) -> str | None:
    """Give what all attempts of a rollout share: its rollout id without an attempt.

    Raises:
        RolloutIdError: the identity keys do not fit (contract, section 2).
    """
    return identity.rollout_id({**_identity(record), identity.ATTEMPT_INDEX: None})


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record.get(key) for key in identity.IDENTITY_KEYS}
