"""Faults of token accounting (contract, section 4): known is known, unknown is null."""

import pytest

from tests.rollouts import calls_of, capture, chat, enrich, result_of

KEYS = (
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "cache_creation_tokens",
    "cache_hit",
)


def tokens(directory, usage):
    response = {"id": "r", "choices": [], "usage": usage}
    capture(directory, chat("a", response=response))
    (call,) = calls_of(enrich(directory))
    return {key: call[key] for key in KEYS}


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        pytest.param(
            {
                "prompt_tokens": 1000,
                "completion_tokens": 40,
                "total_tokens": 1040,
                "prompt_tokens_details": {"cached_tokens": 700},
                "cache_read_input_tokens": 700,
                "cache_creation_input_tokens": 250,
            },
            (1000, 40, None, 1040, 700, 250, True),
            id="20: a gateway that reports both ways",
        ),
        pytest.param(
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 95,
                "output_tokens": 9,
            },
            (1000, 9, None, 1009, 900, 95, True),
            id="21: anthropic leaves cached tokens out",
        ),
        pytest.param(
            {
                "input_tokens": 1000,
                "cache_read_input_tokens": 900,
                "output_tokens": 9,
                "total_tokens": 1009,
            },
            (1000, 9, None, 1009, 900, None, True),
            id="a gateway that counted them in",
        ),
        pytest.param(
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 900,
                "output_tokens": 9,
                "total_tokens": 5000,
            },
            (905, 9, None, 5000, 900, None, True),
            id="a total that says something else",
        ),
        pytest.param(
            {"cache_read_input_tokens": 900, "output_tokens": 9},
            (900, 9, None, 909, 900, None, True),
            id="no input tokens, but cached ones",
        ),
        pytest.param(
            {"cache_read_input_tokens": 0, "output_tokens": 9},
            (None, 9, None, None, 0, None, False),
            id="no input tokens and nothing cached",
        ),
        pytest.param(
            {"input_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            (5, None, None, None, 0, 0, False),
            id="a cold cache",
        ),
        pytest.param(
            {"input_tokens": 5, "cache_creation_input_tokens": 95, "output_tokens": 1},
            (100, 1, None, 101, None, 95, None),
            id="a cache that is written alone",
        ),
        pytest.param(
            {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            (7, 3, None, 10, None, None, None),
            id="23: chat without details",
        ),
        pytest.param(
            {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {}},
            (7, 3, None, 10, None, None, None),
            id="23: chat with empty details",
        ),
        pytest.param(
            {
                "prompt_tokens": 7,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": None},
            },
            (7, None, None, None, None, None, None),
            id="23: chat with null details",
        ),
        pytest.param(
            {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}},
            (7, None, None, None, 0, None, False),
            id="a known zero is no unknown",
        ),
        pytest.param(
            {
                "input_tokens": 7,
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 2},
                "input_tokens_details": {"cached_tokens": 4},
            },
            (7, 3, 2, 10, 4, None, True),
            id="responses",
        ),
        pytest.param(
            {"input_tokens": 7, "reasoning_output_tokens": 2, "cached_input_tokens": 4},
            (7, None, 2, None, 4, None, True),
            id="names of others",
        ),
        pytest.param(
            {"prompt_tokens": 7, "prompt_cache_hit_tokens": 4},
            (7, None, None, None, 4, None, True),
            id="deepseek",
        ),
        pytest.param(
            {"prompt_tokens": 7, "cached_tokens": 3, "prompt_cache_hit_tokens": 4},
            (7, None, None, None, 3, None, True),
            id="the first that is known",
        ),
        pytest.param(
            {"prompt_tokens_details": {"cached_input_tokens": 2}, "cached_tokens": 3},
            (None, None, None, None, 2, None, True),
            id="details first",
        ),
    ],
)
def test_usage(tmp_path, usage, known):
    assert tokens(tmp_path, usage) == dict(zip(KEYS, known, strict=True))


@pytest.mark.parametrize("bad", [-1, 5.0, 5.5, "5", True, False, None, [], {}])
def test_what_is_no_count_is_unknown(tmp_path, bad):
    usage = {
        "input_tokens": bad,
        "output_tokens": bad,
        "total_tokens": bad,
        "output_tokens_details": {"reasoning_tokens": bad},
        "input_tokens_details": {"cached_tokens": bad},
        "cache_creation_input_tokens": bad,
    }
    assert tokens(tmp_path, usage) == dict.fromkeys(KEYS)


@pytest.mark.parametrize("bad", [-1, 5.0, "5", True])
def test_what_is_no_count_lets_the_next_name_speak(tmp_path, bad):
    got = tokens(tmp_path, {"input_tokens": bad, "prompt_tokens": 7, "completion_tokens": 1})
    assert (got["tokens_in"], got["tokens_total"]) == (7, 8)


@pytest.mark.parametrize("usage", [None, [], "x", 5, {}])
def test_no_usage(tmp_path, usage):
    assert tokens(tmp_path, usage) == dict.fromkeys(KEYS)


def test_counts_of_any_size(tmp_path):
    got = tokens(tmp_path, {"input_tokens": 2**70, "output_tokens": 1})
    assert got["tokens_total"] == 2**70 + 1


def with_total(call_id, total):
    response = {"choices": [], "usage": {"total_tokens": total} if total else {}}
    return chat(call_id, response=response)


def test_24_coverage_says_what_a_sum_covers(tmp_path):
    capture(tmp_path, with_total("a", 110), with_total("b", None), with_total("c", 55))
    merged = enrich(tmp_path)["ng_model_call_capture"]
    assert merged["metrics"]["tokens_total"] == 165
    assert merged["metrics"]["num_calls"] == 3
    assert merged["metrics_coverage"] == {"tokens_total": 2}


def test_24_full_and_no_knowledge_need_no_coverage(tmp_path):
    capture(tmp_path, with_total("a", 110), with_total("b", 55))
    merged = enrich(tmp_path)["ng_model_call_capture"]
    assert "metrics_coverage" not in merged
    assert merged["metrics"]["cached_tokens"] is None


def test_perf_sums_what_is_known(tmp_path):
    usages = [
        {"input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 9},
        {},
        {"input_tokens": 10, "output_tokens": 1},
    ]
    capture(
        tmp_path,
        *(
            chat(call_id, response={"choices": [], "usage": usage})
            for call_id, usage in zip("abc", usages, strict=True)
        ),
    )
    perf = enrich(tmp_path, result_of("a", "b", "c"))["ng_perf"]
    assert perf == {
        "num_turns": 3,
        "num_tool_calls": 0,
        "token_observability_coverage": 1.0,
        "prompt_tokens": 915,
        "cached_prompt_tokens": 900,
        "completion_tokens": 10,
    }
