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


def enter(root: Path, rollout_id: str, *, file_mode: int, dir_mode: int) -> None:
    """Announce a call; each needs its `leave`.

    Raises:
        OSError: the file system gives no such locks, or the directory cannot be written.
    """
    with _lock:
        key = (root, file_mode, dir_mode)
        announcer = _announcers.get(key)
        if announcer is None:
            announcer = InflightAnnouncer(root, file_mode=file_mode, dir_mode=dir_mode)
            _announcers[key] = announcer
        announcer.enter(rollout_id)


def leave(root: Path, rollout_id: str, *, file_mode: int, dir_mode: int) -> None:
    """Take an announcement back; one from before a fork is the parent's, and stays."""
    with _lock:
        announcer = _announcers.get((root, file_mode, dir_mode))
        if announcer is not None:
            announcer.leave(rollout_id)


def _forget() -> None:
    for announcer in _announcers.values():
        announcer.forget()
    _announcers.clear()
    _lock.release()


# The lock is held across the fork, so that no announcement is half made in the child.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)
