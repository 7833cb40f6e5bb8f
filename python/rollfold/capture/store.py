"""The capture store as Python sees it: paths, and one exchange at a time."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rollfold import _core
from rollfold.capture.recorder import Durability
from rollfold.errors import CaptureError, CaptureLineError
from rollfold.identity import MAX_ROLLOUT_ID_LENGTH, is_rollout_id, rollout_id

BODIES: Final = {"request": dict, "response": dict, "request_raw": str, "response_raw": str}
"""Fields that read as null where they hold something else."""


class CaptureStore:
    """One directory of captures (contract, section 3).

    Args:
        root: the directory, made (0700) when something is first written.
        durability: `record`, `batch` or `none`; see docs/capture.md.
        file_mode: permissions of the files that are made.
        dir_mode: permissions of the directory if it is made.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Durability = "record",
        file_mode: int = 0o600,
        dir_mode: int = 0o700,
    ) -> None:
        self._root = Path(root)
        self._writer = _core.CaptureWriter(
            self._root, durability=durability, file_mode=file_mode, dir_mode=dir_mode
        )

    @property
    def root(self) -> Path:
        """The directory."""
        return self._root

    def path_for(self, rollout_id: str) -> Path:
        """Give the path of an attempt's exchanges.

        Raises:
            ValueError: the id is not valid (contract, section 2).
        """
        return self._path(rollout_id, "jsonl")

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """Give the path of the marker that some exchange could not be written.

        Raises:
            ValueError: the id is not valid.
        """
        return self._path(rollout_id, "incomplete")

    def late_path_for(self, rollout_id: str) -> Path:
        """Give the path of what a deletion found grown (contract, section 12).

        Raises:
            ValueError: the id is not valid.
        """
        return self._path(rollout_id, "late.jsonl")

    def record(self, rollout_id: str, exchange: Mapping[str, Any]) -> None:
        """Append one exchange and bring it to the disk. Blocks: call it off the event loop.

        What strict JSON does not know is replaced (NaN by null, with the text kept in
        `request_raw` or `response_raw`; half a surrogate by U+FFFD; an object that JSON
        has no word for by its `str`).

        Raises:
            ValueError: the id is not valid.
            CaptureError: it could not be written; the attempt is marked incomplete if
                that can be done.
        """
        self._path(rollout_id, "jsonl")
        try:
            self._writer.append(rollout_id, _line(exchange))
        except OSError as error:
            raise _named(error) from error

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Read an attempt's exchanges, in order; an empty list where there is no file.

        Replayed records are all there: what counts once is the fold's to say.

        Raises:
            ValueError: the id is not valid.
            CaptureLineError: a line is no exchange (contract, section 3); `read_available`
                gives the others.
            CaptureError: the file could not be read at all.
        """
        found, bad = self._read(rollout_id)
        if bad:
            late, line, at, reason = bad[0]
            path = (self.late_path_for if late else self.path_for)(rollout_id)
            raise CaptureLineError(f"{path}: line {line}, byte {at}: {reason}")
        return [exchange for _, exchange in found]

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """Read what can be read of an attempt.

        Returns:
            Each good record with its `call_index`, and how many were unreadable.

        Raises:
            ValueError: the id is not valid.
            CaptureError: the file could not be read at all.
        """
        found, bad = self._read(rollout_id)
        return found, len(bad)

    def _read(
        self, rollout_id: str
    ) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[bool, int, int, str]]]:
        self._path(rollout_id, "jsonl")
        reading = _core.CaptureReading([self._root], rollout_id)
        if reading.unreadable is not None:
            raise CaptureError(reading.unreadable)
        found, bad = reading.exchanges()
        for _, exchange in found:
            for key, kind in BODIES.items():
                if key in exchange and not isinstance(exchange[key], kind):
                    exchange[key] = None
        return found, bad

    def mark_incomplete(self, rollout_id: str) -> None:
        """Leave the marker that some exchange of the attempt could not be written.

        Raises:
            ValueError: the id is not valid.
            CaptureError: the marker could not be made.
        """
        try:
            self._writer.mark_incomplete(rollout_id)
        except OSError as error:
            raise _named(error) from error

    def is_incomplete(self, rollout_id: str) -> bool:
        """Say whether the marker is there.

        Raises:
            ValueError: the id is not valid.
        """
        return self.incomplete_path_for(rollout_id).exists()

    def in_flight(self, rollout_id: str) -> bool:
        """Say whether a call of the attempt is announced and not yet on disk.

        Raises:
            ValueError: the id is not valid.
        """
        self._path(rollout_id, "jsonl")
        return _core.in_flight([self._root], rollout_id)

    def sync(self) -> None:
        """Bring what was recorded with durability `batch` to the disk.

        Raises:
            CaptureError: some file could not be synced.
        """
        try:
            self._writer.sync()
        except OSError as error:
            raise _named(error) from error

    def clear(self, rollout_ids: str | Iterable[str]) -> int:
        """Remove everything of these attempts, read or not, before they run anew.

        Returns:
            How many files there were.

        Raises:
            ValueError: an id is not valid; nothing was removed then.
            CaptureError: a file could not be removed.
        """
        ids = [rollout_ids] if isinstance(rollout_ids, str) else list(rollout_ids)
        for one in ids:
            self._path(one, "jsonl")
        try:
            return sum(_core.clear_capture(self._root, one) for one in ids)
        except OSError as error:
            raise _named(error) from error

    def _path(self, rollout_id: str, kind: str) -> Path:
        if not is_rollout_id(rollout_id):
            raise ValueError(
                f"invalid rollout id {rollout_id!r}: expected [A-Za-z0-9][A-Za-z0-9._-]* "
                f"of at most {MAX_ROLLOUT_ID_LENGTH} characters"
            )
        return self._root / f"{rollout_id}.capture.{kind}"


def clear_model_call_captures_for_rollouts(
    records: Iterable[Mapping[str, Any]],
    capture_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> int:
    """Remove the captures of exactly these rows' attempts, before they are dispatched.

    Args:
        records: rows with their identity keys, the attempt index included; rows that give
            no rollout id have no capture.
        capture_dirs: every directory that may hold one.

    Returns:
        How many files there were.

    Raises:
        RolloutIdError: a row's identity keys give no valid id; nothing was removed then.
        CaptureError: a file could not be removed.
    """
    ids = [found for record in records if (found := rollout_id(record)) is not None]
    if isinstance(capture_dirs, str | os.PathLike):
        capture_dirs = [capture_dirs]
    return sum(CaptureStore(directory).clear(ids) for directory in capture_dirs)


def _named(error: OSError) -> CaptureError:
    if error.errno is None:  # not the system's own: it names the file itself
        return CaptureError(str(error))
    return CaptureError(error.errno, error.strerror, error.filename)


def _line(exchange: Mapping[str, Any]) -> bytes:
    kept = dict(exchange)
    for body in ("request", "response"):
        value, raw = kept.get(body), f"{body}_raw"
        if value is not None and kept.get(raw) is None and _has_non_finite(value):
            kept[raw] = json.dumps(value, default=str, ensure_ascii=False)
    try:
        return _core.dumps(kept)
    except TypeError:
        # Dates, enumerations and the like: said as text rather than lost.
        return _core.dumps(json.loads(json.dumps(kept, default=str)))


def _has_non_finite(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return False
