"""What a collection runs: the input's rows, each stamped with who it is."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from rollfold import _core, identity
from rollfold.collect.latest import rollout_key
from rollfold.dispatch.attempt import agent_of
from rollfold.errors import RollfoldError, RolloutIdError

PROBLEMS_SHOWN: Final = 20

_NOT_THE_TASK: Final = frozenset(
    (identity.TASK_INDEX, identity.ROLLOUT_INDEX, identity.ATTEMPT_INDEX, identity.ROLLOUT_ID)
)


class InputError(RollfoldError, ValueError):
    """The input cannot be run as it is; names the file and the line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The materialized inputs of a run.

    Args:
        path: the file, one stamped row a line.
        run_id: of the run; the same for the same rows.
        total: how many rollouts there are.
        agents: the agents that the rows name.
    """

    path: Path
    run_id: str
    total: int
    agents: frozenset[str]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Read the rows, one at a time."""
        return (row for _, row in read_rows(self.path))


def read_rows(path: Path, limit: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a file, JSON lines; give each with its line's number, from 1.

    Raises:
        InputError: the file cannot be read, or a line is no JSON object.
    """
    left = limit
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if left == 0:
                    return
                if not line.strip():
                    continue
                try:
                    row = _core.loads(line)
                except ValueError as error:
                    raise InputError(f"{path}: line {number}: {error}") from error
                if not isinstance(row, dict):
                    raise InputError(f"{path}: line {number}: not a JSON object")
                if left is not None:
                    left -= 1
                yield number, row
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def materialize(
    source: Path,
    target: Path,
    *,
    repeats: int = 1,
    limit: int | None = None,
    default_agent: str | None = None,
    keep: bool = False,
) -> Plan:
    """Stamp every row with its indices and write the rows that a run dispatches.

    Rows that are equal but for their identity share a task index; an index or id that a
    row has stays. Rollout indices count up within a task.

    Args:
        source: the input, JSON lines.
        target: written anew, through a temporary file.
        repeats: rollouts of each row.
        limit: rows of the input that are used, None for all.
        default_agent: the agent of rows that name none.
        keep: refuse to replace a target that holds other rows: another run's.

    Returns:
        The plan; its run id is a hash of what was written.

    Raises:
        InputError: rows that cannot be run; lists them by line.
        OSError: the target cannot be written.
    """
    stamps = _Stamps()
    for _, row in read_rows(source, limit):
        stamps.see(row)
    digest = hashlib.sha256()
    total = 0
    agents: set[str] = set()
    ids: set[str] = set()
    problems: list[str] = []
    temporary = target.with_name(f"{target.name}.tmp")
    with temporary.open("wb") as file:
        for number, row in read_rows(source, limit):
            for repeat in range(repeats):
                stamped = stamps.stamp(dict(row), again=repeat > 0)
                if agent_of(stamped) is None and default_agent is not None:
                    stamped["agent_ref"] = {"name": default_agent}
                problem = _problem(stamped, ids, repeat)
                if problem is not None:
                    problems.append(f"{source}: line {number}: {problem}")
                    break
                agents.add(agent_of(stamped) or "")
                line = _core.dumps(stamped) + b"\n"
                digest.update(line)
                file.write(line)
                total += 1
    if problems:
        temporary.unlink()
        more = len(problems) - PROBLEMS_SHOWN
        raise InputError(
            "; ".join(problems[:PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        )
    if keep and target.exists() and _file_digest(target) != digest.digest():
        temporary.unlink()
        raise InputError(f"{target}: holds the rows of another run than {source} gives")
    temporary.replace(target)
    return Plan(target, digest.hexdigest()[:32], total, frozenset(agents))


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


class _Stamps:
    """Hands out task and rollout indices beside those that rows brought."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, object] = {}
        self._given_tasks: set[str] = set()
        self._given_rollouts: dict[str, set[str]] = {}
        self._next_task = count()
        self._next_rollout: dict[str, Iterator[int]] = {}

    def see(self, row: Mapping[str, Any]) -> None:
        """Learn what a row brought, before any index is handed out."""
        task = row.get(identity.TASK_INDEX)
        rollout = row.get(identity.ROLLOUT_INDEX)
        if task is not None:
            self._given_tasks.add(str(task))
            self._tasks.setdefault(_digest(row), task)
        if rollout is not None:
            of_task = str(task) if task is not None else _digest(row).hex()
            self._given_rollouts.setdefault(of_task, set()).add(str(rollout))

    def stamp(self, row: dict[str, Any], *, again: bool) -> dict[str, Any]:
        """Give a row what it lacks; `again` where it is a repeat of one with its own index."""
        digest = _digest(row)
        task = row.get(identity.TASK_INDEX)
        if task is None:
            task = self._tasks.get(digest)
            if task is None:
                task = next(n for n in self._next_task if str(n) not in self._given_tasks)
                self._tasks[digest] = task
            row[identity.TASK_INDEX] = task
        if again or row.get(identity.ROLLOUT_INDEX) is None:
            key = str(task)
            given = self._given_rollouts.get(key, set()) | self._given_rollouts.get(
                digest.hex(), set()
            )
            numbers = self._next_rollout.setdefault(key, count())
            row[identity.ROLLOUT_INDEX] = next(n for n in numbers if str(n) not in given)
        return row


def _digest(row: Mapping[str, Any]) -> bytes:
    """Give the same bytes for rows that are equal but for their identity."""
    task = {key: value for key, value in row.items() if key not in _NOT_THE_TASK}
    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).digest()


def _problem(row: Mapping[str, Any], ids: set[str], repeat: int) -> str | None:
    """Say what keeps a stamped row from being run."""
    if agent_of(row) is None:
        return "agent_ref.name is missing, and there is not one agent to choose"
    try:
        key = rollout_key(row)
        identity.rollout_id(row)
    except RolloutIdError as error:
        return str(error)
    if key is None or key in ids:
        if repeat and row.get(identity.ROLLOUT_ID) is not None:
            return f"{identity.ROLLOUT_ID} is given: it cannot be repeated"
        return f"another row has the rollout id {key}"
    ids.add(key)
    return None
