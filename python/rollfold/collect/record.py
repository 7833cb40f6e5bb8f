"""From a result to the line that is written: enrich, encode, and delete once it is safe."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rollfold import _core, identity
from rollfold.capture.store import clear_model_call_captures_for_rollouts
from rollfold.dispatch.attempt import Result, name_of
from rollfold.dispatch.engine import Sent

if TYPE_CHECKING:
    from rollfold.collect.run import CollectOptions
    from rollfold.collect.summary import Summary

logger = logging.getLogger("rollfold.collect")

PACKED_HEAD: Final = b'{"rollfold_packed":'
"""How a packed record's line begins."""


class Records:
    """Makes records, and sees to the captures they come from.

    Args:
        options: of the run.
        captures: its capture directories, as far as they are known by the first record.
        summary: gets the counts of what went wrong.
    """

    def __init__(
        self, options: "CollectOptions", captures: Sequence[Path], summary: "Summary"
    ) -> None:
        self._options = options
        self._captures = captures
        self._summary = summary

    async def clear(self, row: Mapping[str, Any]) -> None:
        """Remove old captures of exactly the attempt that is about to be dispatched."""
        if self._captures:
            await asyncio.to_thread(
                clear_model_call_captures_for_rollouts, [row], list(self._captures)
            )

    async def enriched(self, sent: Sent, result: Result) -> Result:
        """Give a result's record; where that fails, the result with its identity."""
        try:
            return await self._enrich(sent, result)
        except Exception:
            self._summary.enrich_errors += 1
            logger.warning(
                "rollout %s: enriching failed, its result stays as it came",
                name_of(sent.row),
                exc_info=True,
            )
            record = dict(result)
            identity.copy_identity(sent.row, record)
            return record

    async def delete(self, sent: Sent, result: Result, record: Result) -> Result | None:
        """Remove the capture of a record that is on the disk.

        The capture is read once more and goes only as that reading found it.

        Args:
            sent: the row and its reply.
            result: what the agent server returned.
            record: what was written.

        Returns:
            A record that is to be kept beside the one written, because calls came in
            between that only it has; None where there is nothing more to keep.
        """
        if not self._options.delete_captures or not self._captures:
            return None
        try:
            again = await self._enrich(sent, result, delete_capture=True)
        except Exception:
            self._summary.captures_kept += 1
            logger.warning("rollout %s: its capture is kept", name_of(sent.row), exc_info=True)
            return None
        rollout_id, _ = identity.resolve(sent.row, result)
        names = [f"{rollout_id}.capture{kind}.jsonl" for kind in ("", ".late")]
        if any((root / name).exists() for root in self._captures for name in names):
            self._summary.captures_kept += 1
        return None if calls_of(again) == calls_of(record) else again

    async def _enrich(self, sent: Sent, result: Result, *, delete_capture: bool = False) -> Result:
        from rollfold.enrich import enrich_run_result_async  # noqa: PLC0415 (cost at first use)

        record = dict(result)
        await enrich_run_result_async(
            sent.row,
            record,
            capture_dirs=list(self._captures),
            observability_enabled=self._options.observability_enabled,
            rollout_latency_ms=None if sent.seconds is None else sent.seconds * 1000.0,
            delete_capture=delete_capture,
        )
        return record

    def encode(self, record: Result) -> bytes:
        """Give a record's line, without its newline, in the form of the run."""
        return encode_line(record, self._options.form)


def encode_line(record: Result, form: str) -> bytes:
    """Give a record's line, without its newline.

    Args:
        record: a JSON object.
        form: `full` or `packed`.
    """
    if form == "packed":
        from rollfold.packed import pack  # noqa: PLC0415 (only where it is asked for)

        return pack(record)
    return _core.dumps(record)


def decode_line(line: bytes) -> Any:
    """Give the record of a line, full or packed.

    Raises:
        ValueError: the line is not strict JSON.
    """
    if line.startswith(PACKED_HEAD):
        from rollfold.packed import unpack  # noqa: PLC0415 (only where there is one)

        return unpack(line)
    return _core.loads(line)


def calls_of(record: Result) -> int:
    """Count the captured calls that a record has."""
    capture = record.get("ng_model_call_capture")
    calls = capture.get("calls") if isinstance(capture, dict) else None
    return len(calls) if isinstance(calls, list) else 0
