"""What is looked at before a row is sent."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rollfold import identity
from rollfold.dispatch.attempt import agent_of
from rollfold.errors import RollfoldError, RolloutIdError

PROBLEMS_SHOWN: Final = 20


class RowsError(RollfoldError, ValueError):
    """Rows that cannot be dispatched; nothing was sent.

    Args:
        problems: one line each, naming the row by its place in the list.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        shown = "; ".join(self.problems[:PROBLEMS_SHOWN])
        more = len(self.problems) - PROBLEMS_SHOWN
        return f"nothing dispatched: {shown}" + (f"; and {more} more" if more > 0 else "")


class RowCheck:
    """Checks rows one after the other: an agent, a valid rollout id, an id of its own.

    Args:
        is_known: says whether a row's agent can be reached.
    """

    def __init__(self, is_known: Callable[[str], bool] | None = None) -> None:
        self._is_known = is_known
        self._seen: set[str] = set()

    def problem(self, row: object) -> str | None:
        """Say what keeps a row from being sent, None where nothing does."""
        if not isinstance(row, Mapping):
            return f"a row must be a JSON object, not a {type(row).__name__}"
        agent = agent_of(row)
        if agent is None:
            return "agent_ref.name is missing"
        if self._is_known is not None and not self._is_known(agent):
            return f"agent_ref.name: no address for the agent {agent!r}"
        try:
            rollout_id = identity.rollout_id(row)
        except RolloutIdError as error:
            return str(error)
        if rollout_id is not None:
            if rollout_id in self._seen:
                return f"another row has the rollout id {rollout_id}"
            self._seen.add(rollout_id)
        return None


def problems_of(rows: Iterable[Any], check: RowCheck) -> list[str]:
    """Check a whole list: one line for each row that cannot be sent."""
    return [
        f"row {number}: {problem}"
        for number, row in enumerate(rows)
        if (problem := check.problem(row)) is not None
    ]


def stamp_rollout_ids(rows: Iterable[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Give each row, in place, a rollout id that stays unique over the steps of a training run.

    The id is `{prefix}-{n}`, n the row's place in `rows`; a step's number in the prefix
    keeps the ids of one step apart from those of the next, so that their captures never
    share a file.

    Args:
        rows: rows as they are dispatched.
        prefix: `[A-Za-z0-9][A-Za-z0-9._-]*`, for example `run7-step120`.

    Returns:
        The same row objects, in a list.

    Raises:
        RolloutIdError: the prefix does not fit; no row is stamped.
    """
    stamped = list(rows)
    identity.rollout_id({identity.ROLLOUT_ID: f"{prefix}-{max(len(stamped) - 1, 0)}"})
    for number, row in enumerate(stamped):
        row[identity.ROLLOUT_ID] = f"{prefix}-{number}"
    return stamped
