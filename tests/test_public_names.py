"""Every public name is there, and importing the package loads none of its extras."""

import subprocess
import sys

import rollfold


def test_every_name_is_there():
    for name in rollfold.__all__:
        assert getattr(rollfold, name) is not None
    assert set(rollfold.__all__) <= set(dir(rollfold))
    assert set(rollfold._PUBLIC) <= set(rollfold.__all__)


def test_an_import_loads_no_extra():
    code = (
        "import sys, rollfold, rollfold.dispatch\n"
        "extras = {'aiohttp', 'click', 'yaml', 'rich', 'starlette', 'uvicorn', 'openai', 'anthropic'}\n"
        "print(sorted(extras & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
