"""The JSON forms convert each shape once, with stand-ins for texts: no text may be lost in that."""

import json
import random

import pytest
from tests.rollouts import ROW, capture, messages, observed, result_of, turns_of
from tests.rollouts import enrich as as_dict

from rollfold import dumps, enrich, enrich_run_result_json, unpack

ODD = (
    "\x7f", "\x7f0\x7f", "\x7f1\x7f", "\\u007f", "/", "\\", '"', "\n", "\r\t\b\f", "\x00\x01\x1f",
    "é", "β→", "\U0001f600", "\u2028", "plain words", "0", "input", '{"text":"x"}', "",
)  # fmt: skip

SPELLINGS = {
    "ascii": json.dumps,
    "utf-8": lambda value: json.dumps(value, ensure_ascii=False),
    "spaced": lambda value: json.dumps(value, ensure_ascii=False, separators=(" ,  ", "\t: ")),
    "slashes": lambda value: json.dumps(value).replace("/", "\\/"),
}


class Odd(random.Random):
    """Messages of odd texts."""

    def text(self):
        return "".join(self.choices(ODD, k=self.randrange(6)))

    def source(self):
        base64 = {"type": "base64", "media_type": "image/png", "data": self.text()}
        return self.choice([base64, {"type": "url", "url": self.text()}])

    def value(self, depth=2):
        makers = [self.text, self.text, lambda: self.choice([None, True, 7, 2**70, 1.5, -0.0, {}])]
        if depth:
            makers.append(lambda: [self.value(depth - 1) for _ in range(self.randrange(3))])
            makers.append(
                lambda: {
                    self.choice([*ODD, "text", "input"]): self.value(depth - 1) for _ in range(2)
                }
            )
        return self.choice(makers)()

    def block(self, *, said):
        text = {"type": "text", "text": self.text()}
        image = {"type": "image", "source": self.source()}
        if said:
            more = [
                {"type": "thinking", "thinking": self.text(), "signature": self.text()},
                {"type": "redacted_thinking", "data": self.text()},
                {"type": "tool_use", "id": self.text(), "name": "n", "input": self.value()},
            ]
        else:
            content = self.choice([self.text(), [text], [text, text], [text, image], None])
            more = [{"type": "tool_result", "tool_use_id": self.text(), "content": content}] * 2
        block = self.choice([text, image, *more])
        if self.random() < 0.2:
            block = {**block, self.choice(["cache_control", "\x7f", "text "]): self.value()}
        return block

    def blocks(self, *, said):
        blocks = [self.block(said=said) for _ in range(self.randrange(1, 4))]
        if self.random() < 0.03:
            blocks.append({"type": self.choice(["\x7f0\x7f", "document"]), "text": "x"})
        return blocks

    def conversation(self, calls):
        asked = [{"role": "user", "content": self.text()}]
        system = self.choice([self.text(), self.blocks(said=False), None])
        for number in range(calls):
            said = self.blocks(said=True)
            request = {"model": "m", "system": system, "messages": list(asked)}
            yield messages(f"{number}", said, request=request)
            asked.append({"role": "assistant", "content": said})
            asked.append({"role": "user", "content": self.blocks(said=False)})


def as_json(directory, result, form="full"):
    made = enrich_run_result_json(
        dict(ROW), dumps(result), form=form, capture_dirs=[directory], observability_enabled=True
    )
    return json.loads(made) if form == "full" else unpack(made)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("seed", range(40))
def test_what_is_made_by_shapes_is_what_is_made_of_objects(tmp_path, seed, spelling):
    calls = list(Odd(seed).conversation(6))
    capture(tmp_path, *(SPELLINGS[spelling](call).encode() for call in calls))
    result = result_of(ng_agent_observations=observed(*(call["model_call_id"] for call in calls)))
    made = as_dict(tmp_path, json.loads(dumps(result)))
    expected = json.loads(dumps(made))
    assert len(turns_of(expected)) == len(calls)
    assert as_json(tmp_path, result) == expected
    assert as_json(tmp_path, result, "packed") == expected


def test_messages_of_one_shape_are_converted_once(tmp_path, monkeypatch):
    asked = [{"role": "user", "content": "q"}]
    calls = []
    for number in range(20):
        said = [
            {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"a": f"{number}"}}
        ]
        request = {"model": "m", "system": "S", "messages": list(asked)}
        calls.append(messages(f"{number}", said, request=request))
        asked.append({"role": "assistant", "content": said})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"r{number}"}
        asked.append({"role": "user", "content": [result]})
    capture(tmp_path, *calls)
    taken = []
    convert = enrich.convert_batch_json
    monkeypatch.setattr(
        enrich, "convert_batch_json", lambda jobs: taken.extend(jobs) or convert(jobs)
    )
    observations = observed(*(call["model_call_id"] for call in calls))
    record = as_json(tmp_path, result_of(ng_agent_observations=observations))
    assert len(taken) == 4  # the system, the first question, a tool's use, a tool's result
    question = turns_of(record)[-1]["question"]
    assert [item["output"] for item in question if "output" in item] == [f"r{n}" for n in range(19)]
