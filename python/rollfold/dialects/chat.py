"""The OpenAI Chat Completions dialect: selection alone, done by the core (contract, section 8)."""

from collections.abc import Mapping
from typing import Any

from rollfold import _core
from rollfold.dialects.content import TurnContent


def turn_content(request: Mapping[str, Any] | None, response: Mapping[str, Any]) -> TurnContent:
    """Give the turn of one call: `messages`, the message of the choice with index 0.

    Args:
        request: the body of the request, None where it is not known.
        response: the body of the response, with its `choices` list.
    """
    return TurnContent(*_core.turn_content("chat", request, response))
