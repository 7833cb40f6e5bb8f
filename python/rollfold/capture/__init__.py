"""Write what a model server says, call by call, into capture files (contract, section 3)."""

from rollfold.capture.middleware import CaptureMiddleware
from rollfold.capture.recorder import Recorder
from rollfold.capture.store import CaptureStore, clear_model_call_captures_for_rollouts

__all__ = [
    "CaptureMiddleware",
    "CaptureStore",
    "Recorder",
    "clear_model_call_captures_for_rollouts",
]
