"""Announcing calls in flight, so that a reader can wait for them (contract, section 10).

One announcer per process and directory, whoever asks: 2,000 calls in flight hold one file
descriptor. The kernel takes announcements back when the process ends, however it ends.
"""

import os
import threading
from pathlib import Path

from rollfold._core import InflightAnnouncer

_lock = threading.RLock()
_announcers: dict[tuple[Path, int, int], InflightAnnouncer] = {}


def announcer(root: Path, *, file_mode: int, dir_mode: int) -> InflightAnnouncer:
    """Give this process's announcer for a directory."""
    key = (root, file_mode, dir_mode)
    found = _announcers.get(key)
    if found is None:
        with _lock:
            found = _announcers.setdefault(
                key, InflightAnnouncer(root, file_mode=file_mode, dir_mode=dir_mode)
            )
    return found


def _forget() -> None:
    for announcer in _announcers.values():
        announcer.forget()
    _announcers.clear()
    _lock.release()


# The lock is held across the fork, so that the child knows every announcer there is.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)
