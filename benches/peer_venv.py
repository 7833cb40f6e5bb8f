"""Makes the environment in which nemo-gym 0.7.0 runs, for comparison only.

Nothing of it is imported here, and no code of it is in this repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent / ".peer-venv"
PEER = "nemo-gym==0.7.0"
MODULE = "nemo_gym.rollout_collection"

# Modules whose distribution has another name.
DISTRIBUTIONS = {
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "hydra": "hydra-core",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

REQUIREMENTS = (
    "import importlib.metadata as m; print('\\n'.join("
    "r for r in m.requires('nemo-gym') or [] if 'extra ==' not in r))"
)


class PeerUnavailableError(Exception):
    """The peer cannot be installed here; the message says why."""


def find_python() -> str:
    """Return a Python 3.13, the newest that the peer runs on.

    `ROLLFOLD_PEER_PYTHON` names one; else the path and pyenv's versions are searched.
    """
    named = os.environ.get("ROLLFOLD_PEER_PYTHON")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        named,
        *sorted((str(path) for path in pyenv.glob("3.13*/bin/python3.13")), reverse=True),
        shutil.which("python3.13"),
    ]
    for candidate in candidates:
        if candidate and _output(candidate, "import sys; print(sys.version_info[:2])") == (
            "(3, 13)"
        ):
            return candidate
    raise PeerUnavailableError("no Python 3.13 found (name one in ROLLFOLD_PEER_PYTHON)")


def prepare() -> Path:
    """Make the environment where it is missing and return its interpreter.

    The wheel asks for Python 3.13.14 and for far more than the collector's steps import, so it
    is installed alone, then what its imports name, one by one, in the versions that it asks for.
    """
    python = DIRECTORY / "bin" / "python"
    if python.exists() and _missing(python) is None:
        return python
    print(f"making {DIRECTORY} ...", file=sys.stderr)
    subprocess.run([find_python(), "-m", "venv", DIRECTORY], check=True)
    _install(python, "--no-deps", "--ignore-requires-python", PEER)
    required = {
        re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower(): line
        for line in (_output(python, REQUIREMENTS) or "").splitlines()
    }
    tried: set[str] = set()
    while (module := _missing(python)) is not None:
        name = DISTRIBUTIONS.get(module, module).lower()
        if name in tried:
            raise PeerUnavailableError(f"{PEER} cannot import {module}")
        tried.add(name)
        _install(python, required.get(name, name))
    return python


def _missing(python: Path) -> str | None:
    """Return the module or distribution that the peer's import misses, if any."""
    done = subprocess.run(
        [python, "-c", f"import {MODULE}"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    last = done.stderr.strip().splitlines()[-1]
    found = re.search(r"No module named '([^'.]+)|metadata was found for (\S+)", last)
    if not found:
        raise PeerUnavailableError(f"{PEER} does not import: {last}")
    return found[1] or found[2]


def _install(python: Path, *arguments: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip failed"]
        raise PeerUnavailableError(f"pip install {arguments[-1]}: {reason[0]}")


def _output(python: Path | str, code: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
