"""One physical `/run`: its request, its answer, and what to call it when there is none."""

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rollfold import _core, identity
from rollfold.client import read_up_to
from rollfold.errors import RollfoldError, RolloutIdError

RUN_ERROR: Final = "agent_run_error"
"""The server answered, and the answer is its own failure."""

REQUEST_FAILED: Final = "agent_request_failed"
"""No answer, or one that says that there is none now (429, 502, 503, 504)."""

OMITTED: Final = "_ng_omitted_rollout"
NEVER_STARTED: Final = "never_started"
INTERRUPTED: Final = "interrupted"

FAILURE_CLASS: Final = "_ng_failure_class"
BODY_CHARS: Final = 2000
MAX_BODY_BYTES: Final = 128 << 20
"""Bytes a result's body may have; a larger one is a failure and is not read to its end."""

_PASSING_STATUS: Final = frozenset((429, 502, 503, 504))
_FAILURE_BODY_BYTES: Final = 4 * BODY_CHARS

Row = Mapping[str, Any]
Result = dict[str, Any]


class PostClient(Protocol):
    """What can carry a row to an agent server: NeMo Gym's ServerClient is one, AgentClient another."""

    async def post(self, server_name: str, url_path: str, json: Any) -> Any:
        """Send; give an object with `status` and an awaitable `read()`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt gave no result."""

    failure_class: str
    type: str
    message: str
    http_status: int | None = None
    body: str | None = None

    def record(self, row: Row) -> Result:
        """Give the failure record of a row: its identity, the failure, no reward."""
        record: Result = {}
        identity.copy_identity(row, record)
        record[FAILURE_CLASS] = self.failure_class
        record["_ng_failure_type"] = self.type
        record["_ng_failure_message"] = self.message
        record["_ng_failure_http_status"] = self.http_status
        record["_ng_failure_response_body"] = self.body
        return record


class RolloutFailedError(RollfoldError):
    """An attempt gave no result.

    Args:
        row: the row, as it was given.
        record: its failure record (`_ng_failure_*`), with what was captured if enriched.
    """

    def __init__(self, row: Row, record: Result) -> None:
        super().__init__(row, record)
        self.row = row
        self.record = record

    def __str__(self) -> str:
        record = self.record
        status = record.get("_ng_failure_http_status")
        return (
            f"rollout {name_of(self.row)}: {record.get(FAILURE_CLASS)}: "
            f"{record.get('_ng_failure_message')}"
            + (f" (HTTP status {status})" if status is not None else "")
        )


def name_of(row: object) -> str:
    """Name a row for a message: its rollout id and agent, as far as it has them."""
    if not isinstance(row, Mapping):
        return f"<a {type(row).__name__}>"
    try:
        given = identity.rollout_id(row) or "without id"
    except RolloutIdError:
        given = "with a bad id"
    agent = agent_of(row)
    return f"{given} of {agent}" if agent else given


def agent_of(row: Row) -> str | None:
    """Give the name of a row's agent, None where it names none."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return name if isinstance(name, str) and name else None


def omitted(row: Row, why: str) -> Result:
    """Give the record of a row that was not run, or not to its end (contract, section 11)."""
    record: Result = {}
    identity.copy_identity(row, record)
    record[OMITTED] = why
    return record


def is_executed(record: MutableMapping[str, Any] | Mapping[str, Any]) -> bool:
    """Say whether a record is of an attempt that may have run (contract, section 11)."""
    return record.get(OMITTED) != NEVER_STARTED and not record.get("_ng_dispatch_drained")


async def run_once(
    client: PostClient, server: str, row: Row, *, timeout_s: float, max_body_bytes: int
) -> Result | Failure:
    """Send a row to `/run` and read its result.

    Args:
        client: the carrier.
        server: the name of the server.
        row: sent as it is.
        timeout_s: from the first byte sent to the last one read.
        max_body_bytes: of the result's body.

    Returns:
        The result, a JSON object with nothing added; or the failure. Cancellation passes.
    """
    response: Any = None
    status: int | None = None
    whole = False
    try:
        async with asyncio.timeout(timeout_s) as clock:
            response = await client.post(server_name=server, url_path="/run", json=row)
            status = response.status
            good = 200 <= response.status < 300
            body, whole = await read_up_to(
                response, max_body_bytes if good else _FAILURE_BODY_BYTES
            )
    except Exception as error:  # noqa: BLE001 (a foreign client may raise anything; the row has its outcome)
        if isinstance(error, TimeoutError) and clock.expired():
            message = f"no answer within {timeout_s:g} s"
        else:
            message = " ".join(str(error).split()) or type(error).__name__
        return Failure(REQUEST_FAILED, type(error).__name__, message[:BODY_CHARS], status)
    finally:
        # What is not read to its end must not be read on, nor its connection be used again.
        if not whole and response is not None and (close := getattr(response, "close", None)):
            close()
    if not good:
        kind = REQUEST_FAILED if status in _PASSING_STATUS else RUN_ERROR
        return Failure(kind, "HTTPStatus", "the agent server refused", status, _text(body))
    if not whole:
        message = f"the result is over {max_body_bytes} bytes"
        return Failure(RUN_ERROR, "BodyTooLarge", message, status, _text(body))
    if not body.strip():
        return Failure(RUN_ERROR, "EmptyBody", "the result is empty", status, _text(body))
    try:
        result = _core.loads(body)
    except ValueError as error:
        message = f"the result is not JSON: {error}"
        return Failure(RUN_ERROR, "InvalidJSON", message[:BODY_CHARS], status, _text(body))
    if not isinstance(result, dict):
        message = f"the result is no JSON object but a {type(result).__name__}"
        return Failure(RUN_ERROR, "NotAnObject", message, status, _text(body))
    return result


def _text(body: bytes) -> str:
    return body[:_FAILURE_BODY_BYTES].decode(errors="replace")[:BODY_CHARS]
