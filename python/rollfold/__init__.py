"""Folds every captured model call into its rollout's record."""

from rollfold._core import __version__

__all__ = ["__version__"]
