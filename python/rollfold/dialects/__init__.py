"""The dialects of model calls: one module each, one interface (contract, section 8)."""

from collections.abc import Callable, Mapping
from typing import Any

from rollfold.dialects import anthropic, chat, responses
from rollfold.dialects.anthropic import Unconverted
from rollfold.dialects.content import TurnContent
from rollfold.errors import RollfoldError

__all__ = ["DIALECTS", "NoDecisionError", "TurnContent", "Unconverted", "turn_content"]

Converter = Callable[[Mapping[str, Any] | None, Mapping[str, Any]], TurnContent]

# The list that holds a dialect's decision, and what converts it; looked for in this order.
DIALECTS: dict[str, tuple[str, Converter]] = {
    "responses": ("output", responses.turn_content),
    "chat": ("choices", chat.turn_content),
    "messages": ("content", anthropic.turn_content),
}


class NoDecisionError(RollfoldError, ValueError):
    """A response without its dialect's list: an error body, not a model's decision."""


def turn_content(
    request: Mapping[str, Any] | None,
    response: Mapping[str, Any],
    dialect: str | None = None,
) -> TurnContent:
    """Give what a call asked and what the model decided, as a turn holds it.

    Args:
        request: the body of the request, None where it is not known.
        response: the body of the response.
        dialect: `responses`, `chat` or `messages`; with any other the response's shape
            decides (contract, section 8).

    Raises:
        NoDecisionError: the response holds no list of the dialect's.

    """
    known = DIALECTS.get(dialect) if dialect is not None else None
    for key, convert in (known,) if known else DIALECTS.values():
        if isinstance(response.get(key), list):
            return convert(request, response)
    wanted = known[0] if known else ", ".join(key for key, _ in DIALECTS.values())
    raise NoDecisionError(f"response: no list under {wanted}")
