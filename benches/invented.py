"""Invented text, identifiers and numbers for the shapes, from one seeded source."""

from __future__ import annotations

import random
import string
from typing import Any

EPOCH = 1_787_713_218.0
"""When the first call of every generated rollout starts (Unix seconds)."""

WORDS = (  # noqa: SIM905  (a list would take 180 lines)
    "the of and to in is that for it as was with be by on not this are or from at which but "
    "have an had they you were there one all we can her has their been if more when will would "
    "who so no out up into than them only some could time these two may first then do any like "
    "my now over such our man even most made after also did many before must through back years "
    "where much your way well down should because each just those people how too state good "
    "very make world still own see men work long get here between both life being under never "
    "day same another know while last might us great old year off come since against go came "
    "right used take three function return value error index buffer request response parser "
    "module import class object string array token model rollout reward gradient batch tensor "
    "layer weight café naïve → β-version "
).split()

SCHEMA_WORDS = ("path", "command", "pattern", "limit", "offset", "timeout", "content", "replace")


class Writer:
    """Invented text of a given length, from one seeded source."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def prose(self, size: int) -> str:
        """Return sentences of about `size` characters, a line break every few of them."""
        words = self.random.choices(WORDS, k=size // 5 + 1)
        for at in range(9, len(words), 11):
            words[at] += "." if at % 3 else ".\n"
        return " ".join(words)[:size]

    def code(self, size: int) -> str:
        """Return what a tool prints: source lines with indentation, quotes, paths and numbers."""
        lines: list[str] = []
        length = 0
        while length < size:
            name, arg, word, other = self.random.choices(WORDS, k=4)
            number = self.random.randrange(10_000)
            line = self.random.choice(
                (
                    f'    {number:5d}\t        {name} = self.{arg}("{word}", {other}={number})\n',
                    f"src/{name}/{arg}.py:{number}: if {word} is not None and {other} > {number}:\n",
                    f"    {number:5d}\t\t# {name} {arg} {word} {other} {name} {word}\n",
                    f'E   AssertionError: {{"{name}": {number}, "{arg}": "{word}"}} != {other}\n',
                )
            )
            lines.append(line)
            length += len(line)
        return "".join(lines)[:size]

    def key(self, prefix: str, size: int = 24) -> str:
        """Return an identifier in the manner of the providers' own."""
        return prefix + "".join(
            self.random.choices(string.ascii_letters + string.digits, k=size),
        )

    def schema(self, size: int) -> dict[str, Any]:
        """Return a tool's JSON schema of about `size` bytes."""
        names = self.random.sample(SCHEMA_WORDS, 4)
        each = max(size // 4 - 60, 8)
        return {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": self.prose(each)} for name in names
            },
            "required": names[:2],
            "additionalProperties": False,
        }

    def token_ids(self, count: int) -> list[int]:
        """Return `count` ids of a vocabulary of 150,000."""
        return [int(value * value * 150_000) for value in self._uniform(count)]

    def logprobs(self, count: int) -> list[float]:
        """Return `count` log probabilities with the digits that a float32 has when it is printed."""
        return [
            float(f"{-(value**9) * 14:.9g}") * (1 + 2**-40) if value > 0.2 else -0.0
            for value in self._uniform(count)
        ]

    def _uniform(self, count: int) -> list[float]:
        return [self.random.random() for _ in range(count)]
