"""How the command line reads durations and named addresses."""

import re
from typing import Any, Final

import click

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """Seconds, or a number with a unit: `90`, `30s`, `1.5h`, `1h30m`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Give it in seconds."""
        if isinstance(value, int | float):
            return float(value)
        parts = _PART.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is no duration: 90, 30s, 1.5h, 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


class Agent(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """`NAME=URL`."""

    name = "NAME=URL"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Give the name and the URL."""
        if isinstance(value, tuple):
            return value
        name, equals, url = value.partition("=")
        if not equals or not name or not url.startswith(("http://", "https://")):
            self.fail(f"{value!r} is not NAME=http://...", param, ctx)
        return name, url


class HostPort(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """`HOST:PORT`."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Give it as a mapping with `host` and `port`."""
        if isinstance(value, dict):
            return value
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdigit():
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return {"host": host, "port": int(port)}
