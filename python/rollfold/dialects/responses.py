"""The OpenAI Responses dialect: selection alone, done by the core (contract, section 8)."""

from collections.abc import Mapping
from typing import Any

from rollfold import _core
from rollfold.dialects.content import TurnContent


def turn_content(request: Mapping[str, Any] | None, response: Mapping[str, Any]) -> TurnContent:
    """Give the turn of one call: `instructions` and `input`, the items of `output`.

    Args:
        request: the body of the request, None where it is not known.
        response: the body of the response, with its `output` list.
    """
    return TurnContent(*_core.turn_content("responses", request, response))
