"""The packed form of a record: each distinct value stored once (docs/packed.md)."""

from collections.abc import Mapping
from typing import Any

from rollfold import _core
from rollfold.errors import RecordFormatError

MAX_UNPACKED: int = _core.MAX_UNPACKED
"""Bytes up to which a record is unpacked unless the caller says otherwise: 4 GiB."""


def pack(record: Mapping[str, Any] | bytes) -> bytes:
    """Give a record in its packed form: one line of strict JSON, without its newline.

    Every message, tool list, content block and longer string that the record holds more
    than once is written once and referred to; `unpack` gives the same record back, equal
    as JSON values and to the digit in every number.

    Args:
        record: the record as a dict, or as its JSON text. Other threads run while text
            is packed.

    Raises:
        RecordFormatError: the text is not strict JSON (contract, section 3).
        TypeError: the dict holds something that JSON has no word for.
        ValueError: the dict is nested too deep.
    """
    if isinstance(record, bytes | bytearray | memoryview):
        return pack_json(bytes(record))
    return _core.pack_object(record)


def unpack(packed: bytes, *, max_bytes: int = MAX_UNPACKED) -> Any:
    """Build the record of a packed line.

    Equal parts become one Python object in all their places: treat the record as
    read-only, or own a part of it with `copy.deepcopy`.

    Args:
        packed: the line, with or without its newline.
        max_bytes: refuse a record that would take more: the text of every part once and
            eight bytes for each reference.

    Raises:
        RecordFormatError: not a packed record, malformed, or larger than `max_bytes`.
    """
    try:
        return _core.unpack_object(packed, max_bytes)
    except ValueError as error:
        raise RecordFormatError(str(error)) from None


def pack_json(record: bytes) -> bytes:
    """Pack a record that is there as JSON text; see `pack`."""
    try:
        return _core.pack_json(record)
    except ValueError as error:
        raise RecordFormatError(str(error)) from None


def unpack_json(packed: bytes, *, max_bytes: int = MAX_UNPACKED) -> bytes:
    """Give the full JSON text of a packed line; other threads run meanwhile.

    Args:
        packed: the line, with or without its newline.
        max_bytes: refuse a record whose text is longer.

    Raises:
        RecordFormatError: not a packed record, malformed, or larger than `max_bytes`.
    """
    try:
        return _core.unpack_json(packed, max_bytes)
    except ValueError as error:
        raise RecordFormatError(str(error)) from None


def is_packed(line: bytes) -> bool:
    """Whether a line has the packed form, by its first member."""
    return _core.is_packed(line)
