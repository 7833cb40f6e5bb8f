"""The errors Rollfold raises, under one base."""


class RollfoldError(Exception):
    """Base of every error that Rollfold raises on purpose."""


class RolloutIdError(RollfoldError, ValueError):
    """A row's identity keys give no valid rollout id (contract, section 2).

    Args:
        key: the key that holds the bad value.
        value: the value, as it came.
        reason: why it is refused.
    """

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(key, value, reason)
        self.key = key
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}: {_shown(self.value)}"


def _shown(value: object, limit: int = 200) -> str:
    """Give a value for one line of a message: its repr, bounded."""
    try:
        text = " ".join(repr(value).split("\n"))
    except Exception:  # noqa: BLE001 -- too many digits or levels to print, or its own fault
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= limit else f"{text[:limit]}..."


class MissingExtraError(RollfoldError, ImportError):
    """A feature needs one of the package's extras, which is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(extra, module)
        self.extra = extra
        self.module = module

    def __str__(self) -> str:
        return f"install rollfold[{self.extra}] ({self.module} is missing)"


class RecordFormatError(RollfoldError, ValueError):
    """A record's text is not what it should be: strict JSON, full or packed."""


class RolloutLogError(RollfoldError, OSError):
    """A rollout log could not be opened, written or read; names the file."""


class RolloutLogLockedError(RolloutLogError):
    """Another writer has the log's file open."""


class CaptureError(RollfoldError, OSError):
    """A capture could not be written, read or removed; has `errno` and `filename`."""


class CaptureLineError(RollfoldError, ValueError):
    """A line of a capture is no exchange; names the file, the line and what is wrong."""
