"""Who a rollout is: the keys, the rollout id, the task id (contract, section 2)."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from rollfold.errors import RolloutIdError

TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
ROLLOUT_ID: Final = "_ng_rollout_id"

IDENTITY_KEYS: Final[tuple[str, ...]] = (
    TASK_INDEX,
    ROLLOUT_INDEX,
    ATTEMPT_INDEX,
    ROLLOUT_ID,
    "agent_ref",
    "task_source",
    "skills_ref",
)
"""Keys of a row that its result gets where it lacks them."""

TASK_ID_KEYS: Final[tuple[str, ...]] = ("task_id", "problem_id", "instance_id")
"""Keys that name a task, the first present one wins."""

_ID_KEYS: Final = (ROLLOUT_ID, TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX)

MAX_ROLLOUT_ID_LENGTH: Final = 200
"""Characters of a rollout id, its attempt suffix included."""

_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOO_LARGE: Final = 10**MAX_ROLLOUT_ID_LENGTH


def is_rollout_id(text: str) -> bool:
    """Say whether a text may name a rollout (and so a capture file)."""
    return len(text) <= MAX_ROLLOUT_ID_LENGTH and _PATTERN.fullmatch(text) is not None


def rollout_id(row: Mapping[str, Any]) -> str | None:
    """Give the rollout id of a row or a record: the key of its capture file.

    Args:
        row: a row, a result or a record; only its identity keys are read.

    Returns:
        The id with its attempt's suffix, or None where the row has neither an id nor
        both of its indices. A null key is a missing key.

    Raises:
        RolloutIdError: a key that is present does not fit (contract, section 2).
    """
    stem = row.get(ROLLOUT_ID)
    if stem is not None:
        key, value = ROLLOUT_ID, stem
        if not isinstance(stem, str) or _PATTERN.fullmatch(stem) is None:
            reason = "must be a string matching [A-Za-z0-9][A-Za-z0-9._-]*"
            raise RolloutIdError(key, stem, reason)
    else:
        task, rollout = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
        if task is None or rollout is None:
            return None
        stem = f"{_index(TASK_INDEX, task)}-{_index(ROLLOUT_INDEX, rollout)}"
        key, value = TASK_INDEX, task
    whole = stem + _attempt_suffix(row.get(ATTEMPT_INDEX))
    if len(whole) > MAX_ROLLOUT_ID_LENGTH:
        reason = f"gives a rollout id of over {MAX_ROLLOUT_ID_LENGTH} characters"
        raise RolloutIdError(key, value, reason)
    return whole


def attempt_index(row: Mapping[str, Any]) -> int:
    """Give the number of a row's or record's attempt, 0 for the first (contract, section 2)."""
    return int(_attempt_suffix(row.get(ATTEMPT_INDEX))[2:] or 0)


def task_id(row: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> str | None:
    """Give the id of the task a row is of: the same for all its repeats.

    Args:
        row: the row as it was dispatched.
        result: what its run returned; asked for the keys that the row lacks.

    Returns:
        The first present of `task_id`, `problem_id`, `instance_id`, else the task
        index, as a string; None where there is none of them.

    Raises:
        RolloutIdError: it cannot be given as a string.
    """
    for key in (*TASK_ID_KEYS, TASK_INDEX):
        value = row.get(key)
        if value is None and result is not None:
            value = result.get(key)
        if value is not None:
            return _text(key, value)
    return None


def _text(key: str, value: object) -> str:
    """Give a value as text that any encoding can hold: half a surrogate is U+FFFD."""
    try:
        text = str(value)
    except (ValueError, RecursionError) as error:
        raise RolloutIdError(key, value, "cannot be given as a string") from error
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def copy_identity(row: Mapping[str, Any], result: MutableMapping[str, Any]) -> None:
    """Give a result, in place, the identity keys of its row that it lacks.

    A null in the result is a missing key, and so is one in the row.
    """
    for key in IDENTITY_KEYS:
        value = row.get(key)
        if value is not None and result.get(key) is None:
            result[key] = value


def resolve(row: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Give the capture key of a row and its result, and their disagreement.

    Args:
        row: the row as it was dispatched.
        result: what its run returned, before or after `copy_identity`.

    Returns:
        The rollout id (the row's; where the row has none that of the result, completed
        from the row), and the detail of the gap `rollout_identity_conflict`, or None
        where row and result agree.

    Raises:
        RolloutIdError: the row's keys do not fit, or, where the row has no id, those of
            the result completed from it.
    """
    own = rollout_id(row)
    if own is not None and not _differ(row, result):
        return own, None  # almost always
    completed = {key: result.get(key) for key in IDENTITY_KEYS}
    copy_identity(row, completed)
    if own is None:
        return rollout_id(completed), None
    try:
        other = rollout_id(completed)
    except RolloutIdError:
        return own, None
    return own, None if other is None or other == own else f"{own},{other}"


def _differ(row: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Say whether a result has an identity key that its row has not, or not the same."""
    for key in _ID_KEYS:
        value = result.get(key)
        if value is not None and value != row.get(key):
            return True
    return False


def _index(key: str, value: object) -> str:
    """Give the text of a task's or rollout's index, checked."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        if value >= _TOO_LARGE:
            reason = f"gives a rollout id of over {MAX_ROLLOUT_ID_LENGTH} characters"
            raise RolloutIdError(key, value, reason)
        return str(value)
    if isinstance(value, str) and _PATTERN.fullmatch(value) is not None:
        return value
    reason = "must be an integer >= 0 or a string matching [A-Za-z0-9][A-Za-z0-9._-]*"
    raise RolloutIdError(key, value, reason)


def _attempt_suffix(value: object) -> str:
    """Give `-a{n}` for the n-th retry, nothing for the first try or for no number."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        if value >= _TOO_LARGE:
            reason = f"gives a rollout id of over {MAX_ROLLOUT_ID_LENGTH} characters"
            raise RolloutIdError(ATTEMPT_INDEX, value, reason)
        return f"-a{value}" if value > 0 else ""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        digits = value.lstrip("0")
        if len(digits) > MAX_ROLLOUT_ID_LENGTH:
            reason = f"gives a rollout id of over {MAX_ROLLOUT_ID_LENGTH} characters"
            raise RolloutIdError(ATTEMPT_INDEX, value, reason)
        return f"-a{digits}" if digits else ""
    return ""
