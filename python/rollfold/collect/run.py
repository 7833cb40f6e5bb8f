"""The collector: a run from its input to its records, resumable at any point."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from rollfold import _core, identity
from rollfold.client import AgentClient, GymConfig, allow_connections, fetch_gym_config
from rollfold.collect.latest import rollout_key
from rollfold.collect.ledger import (
    Appender,
    Attempts,
    History,
    Paths,
    dispatch_line,
    header,
    stranger_line,
)
from rollfold.collect.plan import InputError, Plan, materialize
from rollfold.collect.record import Records, decode_line
from rollfold.collect.show import Progress, Quiet
from rollfold.collect.summary import Summary
from rollfold.dispatch.attempt import (
    FAILURE_CLASS,
    INTERRUPTED,
    MAX_BODY_BYTES,
    NEVER_STARTED,
    REQUEST_FAILED,
    Failure,
    PostClient,
    agent_of,
    name_of,
    omitted,
    run_once,
)
from rollfold.dispatch.budget import Budget
from rollfold.dispatch.engine import Engine, Outcome, Sent
from rollfold.errors import RolloutIdError

logger = logging.getLogger("rollfold.collect")

LOST_AT_ONCE: Final = 32
"""Attempts that a kill cut short and that are read at the same time on a resume."""

FIRST_RETRY_S: Final = 0.5
"""Seconds before a rollout without an answer is tried again; doubled each time."""

LONGEST_RETRY_S: Final = 30.0

DONE: Final = Attempts(succeeded=True)
"""What is kept of every rollout that an earlier part of the run finished."""


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """What to collect, how, and where to.

    Args:
        input: rows, JSON lines; rows may lack every identity key.
        output: the records' file; its siblings are named after its stem.
        agents: base URL by agent name; with one, rows that name none go there.
        captures: capture directories.
        repeats: rollouts of each row.
        concurrency: rollouts in flight at most.
        resume: go on with the run whose files are there.
        budget_s: seconds after which what runs is interrupted and nothing starts.
        drain_margin_s: nothing starts with fewer seconds left; None to learn it.
        run_timeout_s: seconds a rollout may take.
        form: of the output's records.
        delete_captures: remove a capture once its record is on the disk.
        retries: new attempts of a failed rollout.
        limit: rows of the input that are used.
        observability_enabled: off withholds `ng_perf`.
        success_at: a reward at or over it is a success.
        max_body_bytes: of one result.
        client: what carries the rows, instead of `agents`; it stays open.
        head_server_config: a gym's head server (`host`, `port`), instead of `agents`.
    """

    input: Path
    output: Path
    agents: Mapping[str, str] = field(default_factory=dict)
    captures: Sequence[Path] = ()
    repeats: int = 1
    concurrency: int = 64
    resume: bool = False
    budget_s: float | None = None
    drain_margin_s: float | None = None
    run_timeout_s: float = 14_400.0
    form: Literal["full", "packed"] = "full"
    delete_captures: bool = False
    retries: int = 0
    limit: int | None = None
    observability_enabled: bool = True
    success_at: float = 1.0
    max_body_bytes: int = MAX_BODY_BYTES
    client: PostClient | None = None
    head_server_config: object | None = None


def collect(options: CollectOptions) -> Summary:
    """Collect, outside an event loop; see `collect_async`."""
    return asyncio.run(collect_async(options))


async def collect_async(
    options: CollectOptions,
    *,
    progress: Callable[[int], Progress] | None = None,
    started: Callable[["Collector"], None] | None = None,
) -> Summary:
    """Run every rollout of an input and write what becomes of each.

    Args:
        options: what to collect.
        progress: makes what follows the run, from the number of its rollouts.
        started: gets the collector once it runs, to drain or interrupt it.

    Returns:
        The summary of the run so far, earlier parts that it resumes included.

    Raises:
        InputError: the input, or files of another run; nothing was sent.
        OSError: a file could not be read or written; `--resume` goes on from there.
        MissingExtraError: aiohttp is not installed.
    """
    collector = Collector(options)
    try:
        return await collector.run(progress or (lambda _: Quiet()), started)
    finally:
        await collector.aclose()


class Collector:
    """One run of a collection."""

    def __init__(self, options: CollectOptions) -> None:
        self.options = options
        self.paths = Paths(options.output)
        self.summary = Summary(options.success_at)
        self._appender = Appender()
        self._engine: Engine | None = None
        self._client: PostClient | None = options.client
        self._owned: AgentClient | None = None
        self._gym = GymConfig()
        self._captures = [Path(directory) for directory in options.captures]
        self._rollouts: dict[str, Attempts] = {}
        self._claimed: set[str] = set()
        self._records = Records(options, self._captures, self.summary)

    def drain(self) -> None:
        """Start nothing more: what runs is finished, the rest is written as never started."""
        if self._engine is not None:
            self._engine.drain()

    def interrupt(self) -> None:
        """Cancel what runs, and write it as interrupted."""
        if self._engine is not None:
            self._engine.interrupt()

    async def aclose(self) -> None:
        """Close every file and connection."""
        if self._engine is not None:
            await self._engine.aclose()
        if self._owned is not None:
            await self._owned.aclose()
        await asyncio.to_thread(self._appender.close)

    async def run(
        self,
        progress: Callable[[int], Progress],
        started: Callable[["Collector"], None] | None,
    ) -> Summary:
        """Do all of it; see `collect_async`."""
        options = self.options
        await self._connect()
        plan = await asyncio.to_thread(self._plan)
        self._check_agents(plan)
        lost = await asyncio.to_thread(self._look_back, plan)
        for start in range(0, len(lost), LOST_AT_ONCE):
            batch = lost[start : start + LOST_AT_ONCE]
            for outcome in await asyncio.gather(*(self._finish(sent) for sent in batch)):
                self.summary.add(outcome.result, rollout_key(outcome.row))
        allow_connections(min(options.concurrency, plan.total))
        self._engine = Engine(
            self._todo(plan),
            check=lambda _: None,
            send=self._send,
            finish=self._finish,
            concurrency=options.concurrency,
            max_held=2 * options.concurrency + 64,
            budget=None
            if options.budget_s is None
            else Budget(options.budget_s, options.drain_margin_s),
        )
        self._engine.start()
        if started is not None:
            started(self)
        with progress(plan.total) as shown:
            await self._consume(self._engine, shown)
        self.summary.look_for_unclaimed(self._captures, self._claimed)
        return self.summary

    async def _connect(self) -> None:
        options = self.options
        if options.head_server_config is not None:
            self._gym = await fetch_gym_config(options.head_server_config)
            if not self._captures and self._gym.capture_dir is not None:
                self._captures.append(self._gym.capture_dir)
        if self._client is None:
            addresses = {**self._gym.servers, **options.agents}
            self._client = self._owned = AgentClient(addresses)

    def _plan(self) -> Plan:
        options, paths = self.options, self.paths
        old = [path for path in (paths.output, paths.failures, paths.dispatched) if path.exists()]
        if old and not options.resume:
            raise InputError(f"{old[0]} exists: --resume goes on with it, or move it away")
        only_agent = next(iter(options.agents)) if len(options.agents) == 1 else None
        return materialize(
            options.input,
            paths.inputs,
            repeats=options.repeats,
            limit=options.limit,
            default_agent=only_agent,
            keep=options.resume,
        )

    def _check_agents(self, plan: Plan) -> None:
        if self._owned is None:
            return
        unknown = sorted(
            agent for agent in plan.agents if self._gym.route(agent) not in self._owned.servers
        )
        if unknown:
            raise InputError(f"no address for {', '.join(unknown)}: give --agent NAME=URL")

    def _look_back(self, plan: Plan) -> list[Sent]:
        """Read what an earlier part of the run left; give the attempts that it lost."""
        history = History(self.paths, plan, decode_line, self.summary.add)
        self._rollouts = history.rollouts
        self.summary.notes.extend(history.notes)
        if not self.paths.dispatched.exists() or not self.paths.dispatched.stat().st_size:
            self._appender.note(self.paths.dispatched, header(plan))
        lost: list[Sent] = []
        if not history.rollouts:
            return lost
        for row in plan.rows():
            attempts = history.rollouts.get(rollout_key(row) or "")
            if attempts is None:
                continue
            for attempt in attempts.dispatched | attempts.finished:
                self._claimed.add(identity.rollout_id(_as_attempt(row, attempt)) or "")
            lost.extend(Sent(_as_attempt(row, n), INTERRUPTED) for n in attempts.lost)
            last = attempts.last_failure
            if last is not None and not attempts.succeeded:
                kind = attempts.failed[last]
                self.summary.note_open(
                    rollout_key(row) or "", agent_of(row) or "", "failures", kind
                )
            if attempts.succeeded and not attempts.lost:
                self._rollouts[rollout_key(row) or ""] = DONE
        return lost

    def _todo(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Give the rows that are to run, each as the attempt that it is."""
        for row in plan.rows():
            attempts = self._rollouts.get(rollout_key(row) or "")
            first = identity.attempt_index(row)
            attempt = first if attempts is None else attempts.next(first, self.options.retries)
            if attempt is not None:
                yield _as_attempt(row, attempt)

    async def _send(self, sent: Sent) -> None:
        row = sent.row
        assert self._client is not None  # noqa: S101 (set before anything is sent)
        rollout_id = identity.rollout_id(row)
        # Kept here and in the file before the request: whatever happens now, it is known.
        self._attempts(row).dispatched.add(identity.attempt_index(row))
        self._claimed.add(rollout_id or "")
        await self._records.clear(row)
        self._appender.note(self.paths.dispatched, dispatch_line(row, rollout_id))
        begun = time.perf_counter()
        sent.reply = await run_once(
            self._client,
            self._gym.route(agent_of(row) or ""),
            row,
            timeout_s=self.options.run_timeout_s,
            max_body_bytes=self.options.max_body_bytes,
        )
        sent.seconds = time.perf_counter() - begun

    async def _finish(self, sent: Sent) -> Outcome:
        """Make a row's record and have it on the disk."""
        row, reply = sent.row, sent.reply
        if isinstance(reply, dict):
            record = await self._records.enriched(sent, reply)
            await self._append_result(row, record)
            late = await self._records.delete(sent, reply, record)
            if late is not None:
                await self._append(self.paths.late, late, self._records.encode)
                self.summary.notes.append(f"{self.paths.late}: calls of {name_of(row)} came late")
            self._rollouts.pop(rollout_key(row) or "", None)  # done: nobody will ask again
            return Outcome(row, record, None, sent.seconds)
        attempts, attempt = self._attempts(row), identity.attempt_index(row)
        if reply == NEVER_STARTED:
            record = omitted(row, reply)
            if attempt in attempts.never_started:  # an earlier part of the run said so already
                return Outcome(row, record)
            attempts.never_started.add(attempt)
        elif isinstance(reply, Failure):
            record = await self._records.enriched(sent, reply.record(row))
            attempts.failed[attempt] = reply.failure_class
        else:
            record = await self._records.enriched(sent, omitted(row, reply))
        attempts.finished.add(attempt)
        await self._append(self.paths.failures, record, _core.dumps)
        return Outcome(row, record, None, sent.seconds, failed=isinstance(reply, Failure))

    async def _append_result(self, row: dict[str, Any], record: dict[str, Any]) -> None:
        if _says(record, row):
            await self._append(self.paths.output, record, self._records.encode)
            return
        line = self._records.encode(record)
        self._appender.note(self.paths.dispatched, stranger_line(row, line))
        await self._append(self.paths.output, record, lambda _: line)

    async def _append(
        self, path: Path, record: dict[str, Any], encode: Callable[[dict[str, Any]], bytes]
    ) -> None:
        await self._appender.append(path, lambda: encode(record))

    async def _consume(self, engine: Engine, shown: Progress) -> None:
        while True:
            outcome = await engine.next()
            if outcome is None:
                break
            if outcome.error is not None:
                raise outcome.error
            self.summary.add(
                outcome.result,
                rollout_key(outcome.row),
                None if outcome.seconds is None else outcome.seconds * 1000.0,
            )
            if outcome.failed:
                self._retry(engine, outcome)
            shown.update(
                done=self.summary.succeeded,
                running=engine.running,
                failed=self.summary.failed,
                mean=self.summary.reward_mean,
            )
        error = engine.take_source_error()
        if error is not None:
            raise error

    def _retry(self, engine: Engine, outcome: Outcome) -> None:
        row, attempts = outcome.row, self._attempts(outcome.row)
        attempt = attempts.next(identity.attempt_index(row), self.options.retries)
        if attempt is None:
            return
        wait = 0.0
        if outcome.result[FAILURE_CLASS] == REQUEST_FAILED:  # a server that is away may come back
            wait = min(FIRST_RETRY_S * 2 ** (len(attempts.failed) - 1), LONGEST_RETRY_S)
        engine.push(_as_attempt(row, attempt), wait)

    def _attempts(self, row: Mapping[str, Any]) -> Attempts:
        return self._rollouts.setdefault(rollout_key(row) or "", Attempts())


def _as_attempt(row: dict[str, Any], attempt: int) -> dict[str, Any]:
    """Give a row as one of its attempts; the first one says no number."""
    if identity.attempt_index(row) == attempt:
        return row
    return {**row, identity.ATTEMPT_INDEX: attempt}


def _says(record: dict[str, Any], row: dict[str, Any]) -> bool:
    """Say whether a record gives the rollout id of its row."""
    try:
        return identity.rollout_id(record) == identity.rollout_id(row)
    except RolloutIdError:
        return False
