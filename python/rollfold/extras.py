"""Optional dependencies, loaded when they are first needed."""

from importlib import import_module
from types import ModuleType

from rollfold.errors import MissingExtraError


def load(module: str, extra: str) -> ModuleType:
    """Import a module that one of the package's extras brings.

    Raises:
        MissingExtraError: the module is not installed; says which extra brings it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(extra, module) from error
