"""What a dialect's converter gives for one model decision."""

from typing import Any, NamedTuple


class TurnContent(NamedTuple):
    """One turn's content (contract, section 8).

    Attributes:
        question: what the model was asked: Responses input items or the dialect's messages,
            a string where the request's input was one, None where the request had none.
        answer: what it decided: items, a chat message, or None where there was no choice.
        reasoning_content: its reasoning (items, or a chat message's text), None where none.
        tool_calls: how many tool calls the answer makes.
    """

    question: Any
    answer: Any
    reasoning_content: Any
    tool_calls: int
