"""The compiled part: Rust, without a Python object in its loops."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final

__all__ = [
    "MAX_UNPACKED",
    "Body",
    "CaptureQueue",
    "CaptureReading",
    "CaptureWriter",
    "Completions",
    "ComposedLine",
    "EndedCall",
    "InflightAnnouncer",
    "LogDamage",
    "LogFrames",
    "LogReader",
    "LogWriter",
    "Recording",
    "RepairReport",
    "Request",
    "StreamAssembler",
    "StreamProgress",
    "Watch",
    "__version__",
    "assemble_stream",
    "build_profile",
    "clear_capture",
    "counters",
    "digest",
    "dumps",
    "fold_batch",
    "fold_dict",
    "in_flight",
    "is_packed",
    "load_log_index",
    "loads",
    "log_record_key",
    "log_writer_at_work",
    "pack_json",
    "pack_object",
    "prepare_log",
    "read_log_record",
    "repair_capture",
    "turn_content",
    "unpack_json",
    "unpack_object",
]

__version__: str
build_profile: Literal["debug", "release"]

# --- streams (contract, section 14) ---

@final
class StreamProgress:
    """What one chunk of a streamed body brought."""

    @property
    def first_token(self) -> bool:
        """Whether the body's first content, reasoning, refusal or tool call is in this chunk.

        True once in a stream at most; the time to the first token ends here.
        """

    @property
    def terminal_offset(self) -> int | None:
        """Where in the chunk the body's first terminal event starts, in bytes.

        None where the chunk completes none; 0 where the event began in an earlier chunk.
        Set once in a stream, as soon as the event's data line is complete: its blank line
        may come in a later chunk.
        """

@final
class StreamAssembler:
    """Puts a streamed body together, chunk by chunk; docs/streams.md has the rules.

    No bytes make it fail, and where the chunks are cut makes no difference to the result.
    The chunks must come from one thread at a time; large ones let other threads run.

    Args:
        dialect: `chat`, `messages` or `responses`; None lets the first event decide.

    Raises:
        ValueError: the dialect is another.
    """

    def __new__(cls, dialect: str | None = None) -> StreamAssembler: ...
    def feed(self, chunk: bytes) -> StreamProgress:
        """Take the body's next bytes, however cut.

        Raises:
            ValueError: the stream was finished before.
        """

    def finish(self, status_code: int | None = None) -> tuple[bytes | None, str | None]:
        """End the body: the response as compact strict JSON, and the error category.

        The response is None where nothing of one came. The category is None for a stream
        that ended as it should under a 2xx status (or none), else one of contract,
        section 14, or for another status the category of that status.

        Raises:
            ValueError: the stream was finished before.
        """

def assemble_stream(
    dialect: str | None, raw: bytes, status_code: int | None = None
) -> tuple[bytes | None, str | None]:
    """Assemble a whole body at once; see `StreamAssembler`."""

@final
class RepairReport:
    """What `repair_capture` did to a file, or would do."""

    @property
    def records(self) -> int:
        """Records that could be read."""

    @property
    def repaired(self) -> int:
        """Records that got another response."""

    @property
    def unreadable(self) -> int:
        """Lines that could not be read; they stay byte by byte."""

    @property
    def kept_as(self) -> Path | None:
        """Where the file as it was is now; None where it was not replaced."""

    @property
    def remarks(self) -> list[tuple[int, str | None, str]]:
        """Line from 1, call id and what was done, for each record that is not in order."""

def repair_capture(path: Path, *, dry_run: bool = False, lock_wait_s: float = 5.0) -> RepairReport:
    """Repair a capture file's responses from the raw text beside them, under its lock.

    A response that is null or says less than its `response_raw` is replaced by what that
    adds up to; one that contradicts it is left. The file is replaced in one rename and
    kept as `.orig` (`.orig.1`, ...); with `dry_run` nothing is written.

    Raises:
        OSError: the file cannot be read, replaced, or locked within `lock_wait_s` seconds.
    """

# --- the capture store's writing side (contract, sections 3 and 10) ---

@final
class CaptureWriter:
    """Appends exchanges to the captures of one directory; safe to share between threads.

    Every append takes the file's exclusive lock, ends a torn last line, follows a file
    that a consumer took away, and writes the line in one call.

    Args:
        root: the directory, made when it is first needed.
        durability: when a record is safe from a crash of the machine: before `append`
            returns (`record`), after the next `sync` (`batch`), when the kernel gets to
            it (`none`).
        file_mode: permissions of files that are made.
        dir_mode: permissions of the directory if it is made.
        lock_wait_s: the longest wait for the lock, in seconds; then the line is written
            without it and the attempt marked incomplete.

    Raises:
        ValueError: an argument is not one of these.
    """

    def __new__(
        cls,
        root: str | os.PathLike[str],
        *,
        durability: str = "record",
        file_mode: int = 0o600,
        dir_mode: int = 0o700,
        lock_wait_s: float = 5.0,
    ) -> CaptureWriter: ...
    def append(self, rollout_id: str, line: bytes) -> _LockOutcome:
        """Append one line (without its newline); says how the lock was had.

        Raises:
            ValueError: the id is not valid, or the line holds a newline.
            OSError: it could not be written; the attempt is marked incomplete if it can be.
        """

    def write(self, rollout_id: str, line: ComposedLine) -> _LockOutcome:
        """Append a composed line; as `append`."""

    def mark_incomplete(self, rollout_id: str) -> None:
        """Leave the marker that some exchange of the attempt could not be written."""

    def sync(self) -> None:
        """Bring what was appended with durability `batch` to the disk."""

_LockOutcome: TypeAlias = Literal["locked", "timed_out", "unavailable"]

@final
class ComposedLine:
    """An exchange's line, ready to be written."""

    def __bytes__(self) -> bytes: ...

@final
class Recording:
    """The bodies of one call as they pass by.

    Args:
        dialect: `chat`, `messages` or `responses`.
        max_body_bytes: how much of each body is kept; None for all.
    """

    def __new__(cls, dialect: str, max_body_bytes: int | None = None) -> Recording: ...
    def feed_request(self, chunk: bytes) -> None:
        """Take the request body's next bytes."""

    def start_response(self, stream: bool) -> None:
        """Begin the response; `stream` where its content type is text/event-stream."""

    def feed_response(self, chunk: bytes) -> tuple[bool, int | None]:
        """Take the response body's next bytes.

        Returns:
            For a stream, what `StreamProgress` says: whether the first token is in the
            chunk, and the offset of the first terminal event in it, if it is.
        """

    def end(
        self,
        *,
        model_call_id: str,
        server_name: str | None = None,
        started_at: float,
        completed_at: float,
        latency_ms: float,
        latency_ttft_ms: float | None = None,
        status_code: int | None = None,
        error_category: str | None = None,
        client_session_id: str | None = None,
        upstream_attempted: bool | None = None,
        response_source: str | None = None,
        upstream_status_code: int | None = None,
        local_response_reason: str | None = None,
        request_cut: bool = False,
    ) -> EndedCall:
        """End the call, once. `request_cut` says that more of the request was to come.

        Times are Unix seconds, durations milliseconds. A body that is no JSON object goes
        into `request_raw` or `response_raw`; what strict JSON does not know is replaced
        and the text kept there. The category of a status that is no success wins over
        `error_category`, which wins over what the response's body says.

        Raises:
            ValueError: it was ended before.
        """

@final
class EndedCall:
    """A call that has ended: composed where its bodies should be looked at, not before."""

    def compose(self) -> ComposedLine:
        """Compose the line from the bodies' own bytes, once.

        Raises:
            ValueError: it was composed or submitted before.
        """

@final
class Completions:
    """What became of submitted calls, for one event loop.

    Its descriptor is readable when there is something to take.
    """

    def __new__(cls) -> Completions: ...
    def fileno(self) -> int:
        """Give the descriptor to watch."""

    def take(self) -> list[tuple[int, _LockOutcome | Literal["failed"], str | None]]:
        """Each call's number, how its lock was had or `failed`, and then why."""

@final
class CaptureQueue:
    """Composes and writes calls on threads that never need the interpreter.

    They start when there is work and end when there has been none for some seconds. A
    forked child needs a queue of its own.

    Args:
        writer: where the lines go.
        threads: how many write at once; an fsync waits for the disk, not for a core.
    """

    def __new__(cls, writer: CaptureWriter, *, threads: int = 16) -> CaptureQueue: ...
    def submit(
        self,
        rollout_id: str,
        call: EndedCall,
        *,
        announcer: InflightAnnouncer | None = None,
        completions: Completions | None = None,
        number: int = 0,
    ) -> None:
        """Write a call soon; then take its announcement back and tell its completion.

        Raises:
            ValueError: it was composed or submitted before.
        """

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted is written; whether it is in time."""

@final
class InflightAnnouncer:
    """What this process announces as in flight in one directory: one file descriptor.

    A forked child must `forget`, or it holds its parent's announcements.
    """

    def __new__(
        cls,
        root: str | os.PathLike[str],
        *,
        file_mode: int = 0o600,
        dir_mode: int = 0o700,
    ) -> InflightAnnouncer: ...
    def enter(self, rollout_id: str) -> None:
        """Announce a call of the attempt.

        Raises:
            OSError: the file system gives no such locks, or the file cannot be made.
        """

    def leave(self, rollout_id: str) -> None:
        """Take one announcement back."""

    def forget(self) -> None:
        """Close the file without taking anything back (in a forked child)."""

    def __len__(self) -> int: ...

@final
class CaptureReading:
    """An attempt's files as they were read, under a shared lock where one could be had.

    Raises:
        ValueError: the id is not valid.
    """

    def __new__(
        cls,
        dirs: Sequence[str | os.PathLike[str]],
        rollout_id: str,
        *,
        lock_wait_s: float = 5.0,
    ) -> CaptureReading: ...
    @property
    def data(self) -> bytes:
        """The late file's bytes, then the capture file's."""

    @property
    def late_len(self) -> int:
        """How many of them are the late file's."""

    @property
    def found(self) -> bool:
        """Whether there was a file."""

    @property
    def incomplete(self) -> bool:
        """Whether the marker was there."""

    @property
    def lock_unavailable(self) -> bool:
        """Whether a file was read without its lock."""

    @property
    def unreadable(self) -> str | None:
        """Why a file that exists could not be read."""

    def exchanges(
        self,
    ) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[bool, int, int, str]]]:
        """Give the records that can be read, with their indices, and those that cannot.

        Returns:
            Index and exchange of each good record; and of each bad one whether it is the
            late file's, its line (from 1), its byte in that file, and what is wrong.
        """

    def delete(self, *, lock_wait_s: float = 5.0) -> str:
        """Delete what was read, if it is still that (contract, section 12).

        Returns:
            `deleted`, `nothing` where there was no file, else why it was kept.

        Raises:
            OSError: a file-system call failed; nothing is lost then.
        """

def in_flight(dirs: Sequence[str | os.PathLike[str]], rollout_id: str) -> bool:
    """Whether a call of the attempt is announced in one of the directories."""

def clear_capture(
    root: str | os.PathLike[str], rollout_id: str, *, lock_wait_s: float = 5.0
) -> int:
    """Remove an attempt's capture, late file and marker, read or not; how many there were."""

# --- JSON (contract, section 3) ---

def dumps(record: object) -> bytes:
    """Give any record as strict JSON.

    NaN and the infinities become null, half a surrogate pair U+FFFD, integers keep all
    their digits. Raises `TypeError` for what JSON has no word for and `ValueError` for what
    is nested too deep to be read again.
    """

def loads(text: bytes) -> Any:
    """Build the value of strict JSON text, as deep as a record may be (1,088).

    Raises `ValueError` with the byte offset.
    """

# --- packed records (docs/packed.md); `rollfold.packed` is the interface ---

MAX_UNPACKED: int

def pack_json(record: bytes) -> bytes:
    """Pack a record's JSON text. Raises `ValueError` where it is not strict JSON."""

def pack_object(record: object) -> bytes:
    """Pack a record of Python objects."""

def unpack_json(packed: bytes, max_bytes: int = ...) -> bytes:
    """Give the full JSON text. Raises `ValueError` where the packed text is malformed."""

def unpack_object(packed: bytes, max_bytes: int = ...) -> object:
    """Build the record; equal parts are one object."""

def is_packed(line: bytes) -> bool:
    """Whether the line's first member is `rollfold_packed`."""

# --- the rollout log's files (docs/log.md); `rollfold.log` is the interface ---

@final
class LogFrames:
    """Records that are ready to be appended to a file."""

    @property
    def records(self) -> int:
        """How many records there are."""

    @property
    def size(self) -> int:
        """How many bytes the file grows by."""

def prepare_log(
    records: list[bytes],
    key: tuple[str | None, bool] | None,
    form: str,
    level: int | None,
) -> tuple[LogFrames, list[tuple[int, str]]]:
    """Form and compress records; also those that are none, by number, and why.

    `key` is the rollout id and whether it never started, of all of them, where the caller
    knows: text in the log's form is then taken as it is.
    """

@final
class LogWriter:
    """A file that is open for appending, and locked. Raises `OSError`s."""

    def __new__(cls, path: str | os.PathLike[str]) -> LogWriter: ...
    @property
    def path(self) -> str: ...
    @property
    def moved(self) -> int:
        """Bytes of a torn tail that were moved to the file's `.torn`."""

    @property
    def unlocked(self) -> bool:
        """Whether the file system has no locks."""

    @property
    def size(self) -> int:
        """The file's size after the last append."""

    def append(self, frames: LogFrames, sync: bool = False) -> None:
        """Append all of it, or on an error none."""

    def sync(self) -> None:
        """Bring what was appended to the disk."""

    def close(self) -> None:
        """Let the next writer in."""

@final
class LogDamage:
    """Bytes of a file that no record could be read from."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def tail(self) -> bool:
        """Whether they reach the end of the file."""

@final
class LogReader:
    """Reads a file's lines in batches: each with offset, length and line of its place."""

    def __new__(cls, path: str | os.PathLike[str], offset: int = 0) -> LogReader: ...
    def __iter__(self) -> LogReader: ...
    def __next__(self) -> list[tuple[bytes, int, int, int]] | LogDamage: ...

def load_log_index(
    path: str | os.PathLike[str],
) -> list[tuple[str | None, bool, tuple[int, int, int]]]:
    """Where a file's records lie; mends the index beside it where nobody writes."""

def read_log_record(path: str | os.PathLike[str], place: tuple[int, int, int]) -> bytes:
    """Read the line at a place of the index. `ValueError` where there is none."""

def log_record_key(line: bytes) -> tuple[str | None, bool]:
    """Whose a record is, and whether it never started. `ValueError` for what is none."""

def log_writer_at_work(path: str | os.PathLike[str]) -> bool:
    """Whether some writer has the file open now."""

# --- the fold (contract, sections 3 to 13); `rollfold.enrich` is the interface ---

@final
class Request:
    """One rollout to be folded: everything but its result."""

    def __new__(
        cls,
        dirs: Sequence[str | os.PathLike[str]],
        rollout_id: str,
        task_id: str | None,
        conflict: str | None,
        *,
        observability: bool,
        payloads: bool = True,
        latency_ms: float | None = None,
        not_before: float | None = None,
        quiescence_s: float = 0.0,
        settle_s: float = 0.0,
        lock_wait_s: float = 2.0,
        in_flight: bool = False,
        interrupted: bool = False,
        failed: bool = False,
        delete: bool = False,
        mode: str = "files",
    ) -> Self: ...

@final
class Watch:
    """A wait for calls in flight, in steps: the caller sleeps in its own way."""

    def __new__(cls, request: Request, timeout_s: float, settle_s: float) -> Self: ...
    def step(self) -> tuple[float | None, bool]:
        """Seconds to sleep before the next step (none: done), and whether calls are in flight."""

def fold_dict(
    request: Request,
    result: dict[str, Any],
    converter: Callable[..., Any],
    wait_s: float | None = None,
) -> dict[str, Any] | None:
    """Enrich a dict in place; give what is to be told, if anything. `wait_s` bounds waiting."""

def counters() -> dict[str, int | float]:
    """Give what this process has folded since it began, by name."""

@final
class Body:
    """A result on its way into the JSON forms: read once, then asked for keys and folded.

    `keys` are the row's identity, which the record gets where the result lacks it. Raises `TypeError` for what is neither `bytes` nor a dict, `ValueError` where the bytes are
    no strict JSON object.
    """

    def __new__(cls, result: bytes | Mapping[str, Any], keys: dict[str, Any]) -> Self: ...
    def members(self, keys: Sequence[str]) -> dict[str, Any]:
        """Give the values of some keys; null and missing ones are left out."""

def digest(items: bytes) -> str:
    """Give the hash in the ids of a message's items, of their JSON with ids that lack it."""

def fold_batch(
    items: list[tuple[Request | None, Body]],
    form: str,
    threads: int,
    converter: Callable[..., Any],
    wait_s: float | None = None,
    log: tuple[int | None, list[tuple[str | None, bool]]] | None = None,
) -> list[Any]:
    """Enrich results into JSON or packed text: as many of the first as fit in memory.

    All of them together wait `wait_s` seconds at most (None: each as its request allows).
    Each outcome is the text with what is to be told (or None), or the exception it cost. With
    `log`, the compression's level (None: plain lines) and for each item the rollout id and
    whether it never started, `LogFrames` come in the text's place.
    """

def turn_content(dialect: str, request: object, response: object) -> tuple[Any, Any, Any, int]:
    """Give a call's turn content in a dialect that needs no converter."""
