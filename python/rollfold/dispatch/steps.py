"""What one call of `run_examples` does to each of its rows, step by step."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rollfold import identity
from rollfold.client import AgentClient, GymConfig, fetch_gym_config
from rollfold.dispatch.attempt import (
    INTERRUPTED,
    REQUEST_FAILED,
    Failure,
    PostClient,
    Result,
    RolloutFailedError,
    Row,
    agent_of,
    name_of,
    omitted,
    run_once,
)
from rollfold.dispatch.checks import RowCheck, RowsError, problems_of
from rollfold.dispatch.engine import Outcome, Sent

logger = logging.getLogger("rollfold.dispatch")

IDS_REMEMBERED: Final = 1_000_000
"""Rollout ids whose earlier dispatch by this process is known (their captures may be stale)."""

_dispatched: dict[str, None] = {}


class Steps:
    """What one call of `run_examples` does to each row."""

    def __init__(
        self,
        *,
        listed: list[Row] | tuple[Row, ...] | None,
        client: PostClient | None,
        head_server_config: object | None,
        capture_dirs: list[Path] | None,
        enrich_options: dict[str, Any] | None,
        run_timeout_s: float,
        clock_skew_s: float,
        max_body_bytes: int,
        record_failures: bool,
    ) -> None:
        self._listed = listed
        self._client = client
        self._owned: AgentClient | None = None
        self._head = head_server_config
        self._capture_dirs = capture_dirs
        self._enrich_options = enrich_options
        self._run_timeout_s = run_timeout_s
        self._clock_skew_s = clock_skew_s
        self._max_body_bytes = max_body_bytes
        self._record_failures = record_failures
        self._gym = GymConfig.from_mapping(getattr(client, "global_config_dict", None) or {})
        if self._capture_dirs is None and self._gym.capture_dir is not None:
            self._capture_dirs = [self._gym.capture_dir]
        self._check = RowCheck(self._reaches)
        self.enrich_errors = 0

    def check_list(self) -> None:
        """Check everything that can be checked before a head server has answered."""
        problems = problems_of(self._listed, self._check) if self._listed is not None else []
        if self._enrich_options is not None and not self._capture_dirs and self._head is None:
            problems.append("enrich_results: no capture directory was given")
        if problems:
            raise RowsError(problems)

    async def prepare(self) -> None:
        """Ask the head server where everything is, and check the rows against that."""
        self._gym = await fetch_gym_config(self._head)
        if self._client is None:
            self._client = self._owned = AgentClient(self._gym.servers)
        if self._capture_dirs is None and self._gym.capture_dir is not None:
            self._capture_dirs = [self._gym.capture_dir]
        problems = []
        if self._enrich_options is not None and not self._capture_dirs:
            problems.append(
                "enrich_results: no capture directory was given and the head server names none"
            )
        if self._listed is not None:
            problems.extend(
                f"row {number}: agent_ref.name: no address for the agent {agent_of(row)!r}"
                for number, row in enumerate(self._listed)
                if not self._reaches(agent_of(row) or "")
            )
        if problems:
            raise RowsError(problems)

    async def cleanup(self) -> None:
        """Close what this run opened."""
        if self._owned is not None:
            await self._owned.aclose()

    def check(self, row: Any) -> Outcome | None:
        """Refuse a row of a generator; a list's were checked before."""
        if self._listed is not None:
            return None
        problem = self._check.problem(row)
        if problem is None:
            return None
        failure = Failure(REQUEST_FAILED, "RowsError", problem)
        known = row if isinstance(row, Mapping) else {}
        return self._failed(row, failure.record(known), None)

    async def send(self, sent: Sent) -> None:
        """Post a row."""
        row = sent.row
        assert self._client is not None  # noqa: S101 (given, or made in prepare)
        server = self._gym.route(agent_of(row) or "")
        sent.not_before = self._note(row)
        begun = time.perf_counter()
        sent.reply = await run_once(
            self._client,
            server,
            row,
            timeout_s=self._run_timeout_s,
            max_body_bytes=self._max_body_bytes,
        )
        sent.seconds = time.perf_counter() - begun

    async def finish(self, sent: Sent) -> Outcome:
        """Enrich what came back, and give it the form the caller wants."""
        row, reply = sent.row, sent.reply
        if isinstance(reply, Failure):
            return self._failed(row, await self._enriched(sent, reply.record(row)), sent.seconds)
        if isinstance(reply, str):
            record = omitted(row, reply)
            if reply == INTERRUPTED:
                record = await self._enriched(sent, record)
            return Outcome(row, record, None, sent.seconds)
        return Outcome(row, await self._enriched(sent, reply), None, sent.seconds)

    def _failed(self, row: Any, record: Result, seconds: float | None) -> Outcome:
        error = None if self._record_failures else RolloutFailedError(row, record)
        return Outcome(row, record, error, seconds, failed=True)

    async def _enriched(self, sent: Sent, result: Result) -> Result:
        if self._enrich_options is None:
            return result
        # A failed or cut-short attempt keeps its files: the record may never be used.
        whole = isinstance(sent.reply, dict)
        options = self._enrich_options
        if not whole:
            options = {**options, "delete_capture": False}
        try:
            from rollfold.enrich import enrich_run_result_async  # noqa: PLC0415 (cost at first use)

            enriched = dict(result)
            await enrich_run_result_async(
                sent.row,
                enriched,
                capture_dirs=self._capture_dirs,
                rollout_latency_ms=None if sent.seconds is None else sent.seconds * 1000.0,
                not_before=sent.not_before,
                **options,
            )
        except Exception:
            self.enrich_errors += 1
            level = logging.WARNING if self.enrich_errors == 1 else logging.DEBUG
            logger.log(
                level,
                "rollout %s: enriching failed, its result stays as it came; later ones are "
                "counted in enrich_errors",
                name_of(sent.row),
                exc_info=True,
            )
            return result
        return enriched

    def _reaches(self, agent: str) -> bool:
        """Say whether an agent has an address, as far as one can know."""
        if isinstance(self._client, AgentClient):
            return self._gym.route(agent) in self._client.servers
        return True

    def _note(self, row: Row) -> float | None:
        """Remember a dispatch; give `not_before` where its id was dispatched before."""
        rollout_id = identity.rollout_id(row)
        if rollout_id is None:
            return None
        if rollout_id in _dispatched:
            return time.time() - self._clock_skew_s
        if len(_dispatched) >= IDS_REMEMBERED:
            del _dispatched[next(iter(_dispatched))]
        _dispatched[rollout_id] = None
        return None
