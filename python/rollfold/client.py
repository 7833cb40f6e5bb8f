"""The HTTP client that reaches agent servers by their names (aiohttp)."""

import logging
import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from rollfold import _core, extras
from rollfold.errors import RollfoldError

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger("rollfold.client")

CONNECT_TIMEOUT_S: Final = 60.0
"""Seconds a connection may take; generous, for a server that 2,000 clients meet at once."""

KEEPALIVE_S: Final = 1.0
"""Seconds an idle connection is used again: less than any common server keeps one open, so
that a run is never lost on a connection that the server is closing."""

HEAD_SERVER_TIMEOUT_S: Final = 30.0
_HEAD_CONFIG_BYTES: Final = 64 << 20
_REFERENCE: Final = re.compile(r"\$\{([^${}]+)\}")
_REFERENCE_DEPTH: Final = 16


class HeadServerError(RollfoldError, OSError):
    """The head server did not give a configuration that can be used."""


class UnknownServerError(RollfoldError, LookupError):
    """A row names a server that the client has no address of."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no address for the server {self.name!r}"


@dataclass(frozen=True)
class GymConfig:
    """What a gym's head server says of its servers.

    Args:
        servers: base URL by server name.
        fronts: environment servers in front of each agent, by the agent's name.
        capture_dir: where its model servers write captures; None where they write none.
    """

    servers: Mapping[str, str] = field(default_factory=dict)
    fronts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    capture_dir: Path | None = None

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> Self:
        """Read a gym's global configuration: `{name: {kind: {type: {host, port, ...}}}}`."""
        servers: dict[str, str] = {}
        fronts: dict[str, list[str]] = {}
        for name, kind, server in _server_entries(config):
            host, port, agent = (
                _resolved(server.get(key), config) for key in ("host", "port", "agent_server")
            )
            if host is not None and port is not None:
                servers.setdefault(name, f"http://{host}:{port}")
            if kind == "environment_servers" and isinstance(agent, Mapping):
                fronts.setdefault(str(_resolved(agent.get("name"), config)), []).append(name)
        captures = _resolved(config.get("model_call_capture_dir"), config)
        if not _resolved(config.get("observability_enabled", captures is not None), config):
            captures = None
        return cls(
            servers=servers,
            fronts={agent: tuple(names) for agent, names in fronts.items()},
            capture_dir=Path(captures) if isinstance(captures, str) and captures else None,
        )

    def route(self, agent: str) -> str:
        """Give the server that takes an agent's rows: its one environment server, else itself."""
        fronts = self.fronts.get(agent, ())
        return fronts[0] if len(fronts) == 1 else agent


def _server_entries(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Give each server of a configuration: its name, its kind and its settings."""
    for name, instance in config.items():
        if not isinstance(instance, Mapping):
            continue
        for kind, servers in instance.items():
            if isinstance(servers, Mapping):
                for server in servers.values():
                    if isinstance(server, Mapping):
                        yield str(name), str(kind), server


def _resolved(value: Any, config: Mapping[str, Any], depth: int = 0) -> Any:
    """Follow references that a gym's configuration may hold: `${a.b}`, `${oc.env:NAME,default}`.

    One that leads nowhere stays as it is.
    """
    if not isinstance(value, str) or depth > _REFERENCE_DEPTH:
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole is not None:
        found = _referenced(whole[1], config)
        return value if found is None else _resolved(found, config, depth + 1)
    return _REFERENCE.sub(lambda match: str(_resolved(match[0], config, depth + 1)), value)


def _referenced(what: str, config: Mapping[str, Any]) -> Any:
    if what.startswith("oc.env:"):
        name, comma, default = what.removeprefix("oc.env:").partition(",")
        return os.environ.get(name.strip(), default.strip() if comma else None)
    found: Any = config
    for key in what.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


class AgentClient:
    """Posts rows to agent servers, as many at once as the caller likes.

    An async context manager; `aclose` ends its connections. Nothing is ever sent again:
    no retry, no redirect followed. Cookies are not kept, so that rollouts stay apart.

    Args:
        servers: base URL (`http://host:port`, a path may follow) by server name.

    Raises:
        MissingExtraError: aiohttp is not installed (`rollfold[collect]`).
        ValueError: a URL is no http or https URL.
    """

    def __init__(self, servers: Mapping[str, str]) -> None:
        self._aiohttp = extras.load("aiohttp", "collect")
        self.servers = {name: _base_url(name, url) for name, url in servers.items()}
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    async def from_head_server(cls, head_server_config: object) -> Self:
        """Make a client of all servers that a head server names (`host` and `port`)."""
        return cls((await fetch_gym_config(head_server_config)).servers)

    async def post(
        self, server_name: str, url_path: str, json: Mapping[str, Any]
    ) -> "aiohttp.ClientResponse":
        """Send one JSON object.

        Args:
            server_name: a key of `servers`.
            url_path: `/run`, joined to the server's URL.
            json: the body; NaN becomes null, half a surrogate pair U+FFFD.

        Returns:
            The response as soon as its head is there; its body is still to be read.

        Raises:
            UnknownServerError: `servers` has no such name.
            aiohttp.ClientError: the server gave no answer.
        """
        base = self.servers.get(server_name)
        if base is None:
            raise UnknownServerError(server_name)
        if self._session is None:
            self._session = self._open()
        return await self._session.post(
            f"{base}{url_path}",
            data=_core.dumps(json),
            headers={"Content-Type": "application/json"},
            allow_redirects=False,
        )

    async def aclose(self) -> None:
        """Close every connection; a post after that opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _open(self) -> "aiohttp.ClientSession":
        return _session(self._aiohttp)


async def fetch_gym_config(head_server_config: object) -> GymConfig:
    """Ask a gym's head server for its configuration.

    Args:
        head_server_config: anything with `host` and `port`, as attributes or keys.

    Raises:
        MissingExtraError: aiohttp or PyYAML is not installed (`rollfold[collect]`).
        HeadServerError: no answer, or none that can be read.
        ValueError: the argument has no host or port.
    """
    aiohttp = extras.load("aiohttp", "collect")
    yaml = extras.load("yaml", "collect")
    url = f"{head_server_url(head_server_config)}/global_config_dict_yaml"
    timeout = aiohttp.ClientTimeout(total=HEAD_SERVER_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url) as response,
        ):
            response.raise_for_status()
            text, whole = await read_up_to(response, _HEAD_CONFIG_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise HeadServerError(f"{url}: {type(error).__name__}: {error}") from error
    if not whole:
        raise HeadServerError(f"{url}: over {_HEAD_CONFIG_BYTES} bytes")
    try:
        config = yaml.safe_load(text)
        if isinstance(config, str):  # the gym sends its YAML as a JSON string
            config = yaml.safe_load(config)
    except yaml.YAMLError as error:
        raise HeadServerError(f"{url}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, Mapping):
        raise HeadServerError(f"{url}: not a mapping")
    return GymConfig.from_mapping(config)


def head_server_url(head_server_config: object) -> str:
    """Give the base URL of anything with host and port."""
    found = []
    for key in ("host", "port"):
        value = getattr(head_server_config, key, None)
        if value is None and isinstance(head_server_config, Mapping):
            value = head_server_config.get(key)
        if value is None:
            raise ValueError(f"head_server_config: no {key}")
        found.append(value)
    return f"http://{found[0]}:{found[1]}"


async def read_up_to(response: Any, limit: int) -> tuple[bytes, bool]:
    """Read a response's body, at most `limit` bytes where the response can be cut short.

    Args:
        response: anything with an awaitable `read()`; one of aiohttp is read in pieces.
        limit: in bytes.

    Returns:
        What was read, and whether it is the whole body.
    """
    content: Any = getattr(response, "content", None)
    if not hasattr(content, "iter_any"):
        body = await response.read()
        return bytes(body[:limit]), len(body) <= limit
    length = getattr(response, "content_length", None)
    if length is not None and length <= limit and "Content-Encoding" not in response.headers:
        return await response.read(), True
    chunks: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], False
    return b"".join(chunks), True


def allow_connections(count: int) -> None:
    """Raise the process's soft limit of open files towards `count` connections, if it is lower.

    The hard limit stays what it is; where it is too low, a warning says so.
    """
    wanted = count + 512  # captures, output files and what the process has open already
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if possible < wanted:
        logger.warning(
            "%d open files are allowed, %d may be wanted: raise `ulimit -n`", hard, wanted
        )
    if possible > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))


def _session(aiohttp: Any) -> "aiohttp.ClientSession":
    """Open a session without a cap on connections and without cookies or time-outs of its own."""
    return aiohttp.ClientSession(  # type: ignore[no-any-return]  # a module loaded by name
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
    )


def _base_url(name: str, url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"server {name}: not an http URL: {url!r}")
    return url.rstrip("/")
