"""Where a request goes: the capture prefix of its path, and the API it calls."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from rollfold.identity import is_rollout_id

PREFIX: Final = "/ng-rollout/"
"""A path that begins so names the rollout attempt whose call it is."""

TOKEN_CAPTURE: Final = "training-token-capture"  # noqa: S105 - a path segment
"""A further segment that gyms put after the id; it is taken off with it."""

DIALECTS: Final = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
"""The paths whose POSTs are recorded, and the dialect that each speaks."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path with a capture prefix, taken apart.

    Args:
        rollout_id: the id in the prefix, as it came: it may be invalid.
        prefix: what was taken off, without a slash at its end.
        path: what is left, beginning with a slash.
    """

    rollout_id: str
    prefix: str
    path: str

    @property
    def valid(self) -> bool:
        """Whether the id may name a capture (contract, section 2)."""
        return is_rollout_id(self.rollout_id)


def split_path(path: str) -> Route | None:
    """Take `/ng-rollout/<id>[/training-token-capture]` off a path; None where it has none."""
    if not path.startswith(PREFIX):
        return None
    rollout_id, slash, rest = path[len(PREFIX) :].partition("/")
    prefix = PREFIX + rollout_id
    if slash and (rest == TOKEN_CAPTURE or rest.startswith(TOKEN_CAPTURE + "/")):
        prefix += "/" + TOKEN_CAPTURE
        rest = rest[len(TOKEN_CAPTURE) + 1 :]
    return Route(rollout_id, prefix, "/" + rest)


def split_raw_path(raw: bytes, route: Route) -> bytes:
    """Take as many segments off a path in its percent-encoded form as `route` took."""
    segments = route.prefix.count("/")
    parts = raw.split(b"/", segments + 1)
    return b"/" + parts[-1] if len(parts) == segments + 2 else b"/"


def keep_prefix(location: str, *, scheme: str, host: str, root: str, prefix: str) -> str:
    """Put the prefix back into where a redirect points, if that is the same origin.

    Args:
        location: the `Location` header as it came.
        scheme: the request's scheme.
        host: the request's `Host` header.
        root: the path that the application is mounted at, without a slash at its end.
        prefix: the capture prefix of the request.

    Returns:
        The location to send; as it came where it leaves the origin, is relative to the
        request's path, or has the prefix already.
    """
    parts = urlsplit(location)
    if parts.netloc and (parts.netloc.lower() != host.lower() or parts.scheme not in ("", scheme)):
        return location
    path = parts.path
    if not path.startswith(root + "/"):
        return location
    inner = path[len(root) :]
    if inner == prefix or inner.startswith(prefix + "/"):
        return location
    return urlunsplit(parts._replace(path=root + prefix + inner))
