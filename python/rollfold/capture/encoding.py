"""Content encodings undone for the record; the wire keeps its bytes."""

import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

PIECE: Final = 256 * 1024
"""The most bytes that come out at once: a small body may say a very long one."""

STEP: Final = 4 * 1024
"""How much goes in at once where a library does not bound what comes out."""

MEMBER: Final = b"\x1f\x8b"
"""How a member of a gzip body begins."""

NEEDS: Final = {"br": "brotli", "zstd": "zstandard"}
"""What to install for encodings that are undone only where their library is there."""


class _Broken(Exception):  # noqa: N818 - it never leaves this module
    """The bytes are not in the encoding that was said."""


class _Inflate:
    """gzip, also of several members, and deflate, with its header or (as many send) without."""

    def __init__(self, *, may_lack_header: bool) -> None:
        self._may_lack_header = may_lack_header
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        self._head: bytes | None = b""
        """What has come in, as long as nothing has come out."""
        self._after = b""
        self._done = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        while chunk and not self._done:
            if self._inflate.eof:
                chunk = self._after + chunk
                self._after = b""
                if len(chunk) < len(MEMBER):
                    self._after = chunk
                    return
                if not chunk.startswith(MEMBER):
                    # Padding after the end.
                    self._done = True
                    return
                self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            yield from self._member(chunk)
            chunk = self._inflate.unused_data

    def _member(self, chunk: bytes) -> Iterator[bytes]:
        if self._head is not None:
            self._head += chunk
        try:
            out = self._inflate.decompress(chunk, PIECE)
        except zlib.error as error:
            # JSON in no encoding can pass for headerless deflate for a few bytes.
            if not self._may_lack_header or self._head is None or self._head.startswith(b"{"):
                raise _Broken from error
            self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            try:
                out = self._inflate.decompress(self._head, PIECE)
            except zlib.error:
                raise _Broken from error
        while True:
            if out:
                self._head = None
                yield out
            rest = self._inflate.unconsumed_tail
            if self._inflate.eof or (not rest and len(out) < PIECE):
                return
            try:
                out = self._inflate.decompress(rest, PIECE)
            except zlib.error as error:
                raise _Broken from error


class _Library:
    """An encoding that a library undoes; it says of broken bytes what it likes."""

    def __init__(self, decompress: Callable[[bytes], bytes]) -> None:
        self._decompress = decompress

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        for at in range(0, len(chunk), STEP):
            try:
                out = self._decompress(chunk[at : at + STEP])
            except Exception as error:
                raise _Broken from error
            if out:
                yield out


class Decoder:
    """Undoes the content encodings of one body, chunk by chunk.

    A body that is not in the encoding that was said comes out as the bytes that it is.

    Args:
        steps: what undoes each encoding, the last applied first.
    """

    def __init__(self, steps: list[Any]) -> None:
        self._steps = steps
        self._seen: bytes | None = b""
        """What has come in, as long as nothing has come out."""
        self._broken = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes, give what they say, in pieces of a bounded size."""
        if self._broken:
            if self._seen is not None:
                yield chunk
            return
        if self._seen is not None:
            self._seen += chunk
        try:
            for out in self._through(chunk, 0):
                self._seen = None
                yield out
        except _Broken:
            self._broken = True
            if self._seen is not None:
                yield self._seen

    def _through(self, chunk: bytes, step: int) -> Iterator[bytes]:
        if step == len(self._steps):
            yield chunk
            return
        for out in self._steps[step].feed(chunk):
            yield from self._through(out, step + 1)


def decoder(header: str) -> Decoder | None:
    """Give what undoes the encodings of a `Content-Encoding` header; None where there are none.

    Raises:
        LookupError: one is not known here; the message says what to install for it.
    """
    names = [name.strip().lower() for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    return Decoder([_step(name) for name in reversed(names)]) if names else None


def _step(name: str) -> Any:
    if name in ("gzip", "x-gzip", "deflate"):
        return _Inflate(may_lack_header=name == "deflate")
    try:
        if name == "br":
            return _Library(importlib.import_module("brotli").Decompressor().process)
        if name == "zstd":
            unpack = importlib.import_module("zstandard").ZstdDecompressor()
            return _Library(unpack.decompressobj(read_across_frames=True).decompress)
    except ImportError:
        raise LookupError(f"content encoding {name}: pip install {NEEDS[name]}") from None
    raise LookupError(f"content encoding {name!r} is not known")
