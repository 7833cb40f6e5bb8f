"""The compiled part: Rust, without a Python object in its loops."""

from typing import Literal, final

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
