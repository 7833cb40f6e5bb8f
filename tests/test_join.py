"""Observations and the join (contract, section 6): guessing nothing."""

import copy

import pytest

from tests.rollouts import MODEL_REF, capture, capture_gaps, chat, enrich, line, observed, result_of

UNOWNED = "model_call_ownership_unavailable"


def joined(directory, bundle, **more):
    return enrich(directory, result_of(ng_agent_observations=bundle, **more))


def gaps_of(result):
    return [
        (gap["code"], gap["invocation_id"], gap["detail"])
        for gap in result["ng_agent_observations"]["gaps"]
    ]


def full(call_id):
    return {"model_call_id": call_id, "model_ref": MODEL_REF, "response_id": f"chatcmpl_{call_id}"}


def test_a_reference_becomes_the_calls_full_one(tmp_path):
    capture(tmp_path, chat("a"), chat("b"), chat("c"))
    bundle = observed()
    bundle["records"][0]["model_calls"] = [
        {"model_call_id": "a"},
        {"model_ref": MODEL_REF, "response_id": "chatcmpl_b"},
        {"model_call_id": "c", "response_id": "chatcmpl_c", "later": 1},
    ]
    result = joined(tmp_path, bundle)
    got = result["ng_agent_observations"]["records"][0]["model_calls"]
    assert [{key: ref[key] for key in full("a")} for ref in got] == [full(c) for c in "abc"]
    assert gaps_of(result) == []


@pytest.mark.parametrize(
    ("reference", "detail"),
    [
        ({"model_call_id": "ghost"}, "ghost"),
        ({"model_call_id": "a", "response_id": "other"}, "a"),
        ({"model_call_id": "a", "model_ref": {**MODEL_REF, "name": "other"}}, "a"),
        ({"model_ref": MODEL_REF, "response_id": "other"}, "other"),
    ],
)
def test_unmatched(tmp_path, reference, detail):
    capture(tmp_path, chat("a"))
    bundle = observed()
    bundle["records"][0]["model_calls"] = [reference]
    result = joined(tmp_path, bundle)
    assert gaps_of(result) == [
        ("model_call_reference_unmatched", "root", detail),
        (UNOWNED, None, "capture:a:call_index=0"),
    ]
    (kept,) = result["ng_agent_observations"]["records"][0]["model_calls"]
    assert {key: value for key, value in kept.items() if value is not None} == reference


def test_conflict_the_first_claim_owns(tmp_path):
    capture(tmp_path, chat("a"))
    sub = observed("a", invocation_id="sub")["records"][0]
    result = joined(tmp_path, observed("a", "a", more=[sub]))
    assert gaps_of(result) == [
        ("model_call_reference_conflict", "root", "a"),
        ("model_call_reference_conflict", "sub", "a"),
    ]
    kept = result["ng_agent_observations"]["records"][1]["model_calls"][0]
    assert kept["response_id"] is None


def test_a_session_id_owns_what_no_reference_means(tmp_path):
    capture(
        tmp_path,
        chat("a", client_session_id="root"),
        chat("b", client_session_id="root"),
        chat("c", client_session_id="other"),
        chat(None, client_session_id="root"),
    )
    result = joined(tmp_path, observed("b"))
    got = result["ng_agent_observations"]["records"][0]["model_calls"]
    assert [reference["model_call_id"] for reference in got] == ["b", "a"]
    assert gaps_of(result) == [
        (UNOWNED, None, "capture:c:call_index=2"),
        (UNOWNED, None, "capture:chatcmpl_None:call_index=3"),
    ]


def test_an_unowned_call_without_any_id(tmp_path):
    capture(tmp_path, b'{"dialect":"chat"}')
    assert gaps_of(joined(tmp_path, observed())) == [
        (UNOWNED, None, "capture:unknown:call_index=0")
    ]


def test_a_compactions_references(tmp_path):
    capture(tmp_path, *(chat(name) for name in "abcde"))
    sub = observed("d", invocation_id="sub")["records"][0]
    compaction = {
        "kind": "context_compaction",
        "invocation_id": "root",
        "before_model_call": {"model_call_id": "a"},
        "model_calls": [{"model_call_id": name} for name in ("b", "c", "d", "ghost")],
        "after_model_call": {"model_call_id": "d"},
    }
    result = joined(tmp_path, observed("a", "b", more=[sub, compaction]))
    assert gaps_of(result) == [
        (UNOWNED, "root", "model_calls:c"),
        ("model_call_reference_conflict", "root", "model_calls:d"),
        ("model_call_reference_unmatched", "root", "model_calls:ghost"),
        ("model_call_reference_conflict", "root", "after_model_call:d"),
        (UNOWNED, None, "capture:c:call_index=2"),
        (UNOWNED, None, "capture:e:call_index=4"),
    ]
    made = result["ng_agent_observations"]["records"][2]
    assert made["before_model_call"] == full("a")
    assert made["model_calls"][0] == full("b")
    assert made["model_calls"][1]["response_id"] is None


def test_before_and_after_may_name_what_nobody_owns(tmp_path):
    capture(tmp_path, chat("a"), chat("b"))
    compaction = {
        "kind": "context_compaction",
        "invocation_id": "root",
        "before_model_call": {"model_call_id": "a"},
        "after_model_call": {"model_call_id": "b"},
    }
    result = joined(tmp_path, observed(more=[compaction]))
    assert [gap[0] for gap in gaps_of(result)] == [UNOWNED, UNOWNED]
    assert result["ng_agent_observations"]["records"][1]["after_model_call"] == full("b")


def test_join_gaps_are_dropped_first_and_others_stay(tmp_path):
    capture(tmp_path, chat("a"))
    old = [
        {"code": "model_call_reference_unmatched", "invocation_id": "root", "detail": "x"},
        {"code": "theirs", "invocation_id": None, "detail": "d"},
        {"code": "theirs", "invocation_id": None, "detail": "d"},
        {"code": "theirs"},
    ]
    result = joined(tmp_path, observed("a", gaps=old))
    assert gaps_of(result) == [("theirs", None, "d"), ("theirs", None, None)]


def test_a_good_bundle_is_written_back_with_every_key(tmp_path):
    capture(tmp_path, chat("a"))
    records = [
        {"kind": "agent_invocation", "invocation_id": "root", "later": {"x": None}},
        {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t"},
        {"kind": "context_compaction", "invocation_id": "root"},
        {"kind": "sandbox", "role": "agent"},
        {"kind": "weather", "wind": 5},
    ]
    before = copy.deepcopy(records)
    result = joined(tmp_path, {"source": "s", "records": records, "when": 1})
    got = result["ng_agent_observations"]
    assert records == before
    assert got["when"] == 1
    assert got["records"] == [
        {
            "kind": "agent_invocation",
            "invocation_id": "root",
            "parent_invocation_id": None,
            "spawned_by_tool_call_id": None,
            "status": "unknown",
            "duration_ms": None,
            "error_type": None,
            "model_calls": [],
            "conversation": [],
            "later": {"x": None},
        },
        {
            "kind": "tool_call",
            "invocation_id": "root",
            "tool_call_id": "t",
            "sandbox_id": None,
            "tool_name": None,
            "started_at": None,
            "completed_at": None,
            "duration_ms": None,
            "timing_source": None,
            "status": "unknown",
            "error_type": None,
        },
        {
            "kind": "context_compaction",
            "invocation_id": "root",
            "observed_at": None,
            "trigger": None,
            "tokens_before": None,
            "tokens_after": None,
            "outcome": "unknown",
            "summary": None,
            "first_kept_item_id": None,
            "before_model_call": None,
            "model_calls": [],
            "after_model_call": None,
        },
        {
            "kind": "sandbox",
            "role": "agent",
            "provider": None,
            "sandbox_id": None,
            "outcome": "unknown",
            "exit_code": None,
            "wall_time_s": None,
            "cpu_time_s": None,
            "peak_memory_mib": None,
            "resource_usage_source": None,
            "error_type": None,
        },
        {"kind": "weather", "wind": 5},
    ]


def invocation(invocation_id="root", **more):
    return {"kind": "agent_invocation", "invocation_id": invocation_id, **more}


MALFORMED = [
    {},
    [],
    5,
    "x",
    {"source": 5, "records": []},
    {"source": "s", "records": {}},
    {"source": "s", "records": [5]},
    {"source": "s", "records": [{}]},
    {"source": "s", "records": [], "gaps": [{}]},
    {"source": "s", "records": [], "gaps": [5]},
    *(
        {"source": "s", "records": [invocation(), *records]}
        for records in (
            [invocation()],
            [invocation("a", parent_invocation_id="b"), invocation("b", parent_invocation_id="a")],
            [invocation("a", parent_invocation_id="a")],
            [invocation(7)],
            [invocation("a", status="done")],
            [invocation("a", duration_ms="5")],
            [invocation("a", duration_ms=True)],
            [invocation("a", duration_ms=-0.5)],
            [invocation("a", conversation="x")],
            [invocation("a", model_calls=[{}])],
            [invocation("a", model_calls=[{"response_id": "r"}])],
            [invocation("a", model_calls=[{"model_call_id": ""}])],
            [invocation("a", model_calls=[{"model_call_id": 5}])],
            [{"kind": "tool_call", "invocation_id": "root"}],
            [{"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t", "status": "x"}],
            [
                {
                    "kind": "tool_call",
                    "invocation_id": "root",
                    "tool_call_id": "t",
                    "started_at": 5,
                    "completed_at": 4.5,
                }
            ],
            [{"kind": "context_compaction", "invocation_id": "root", "tokens_before": -1}],
            [{"kind": "context_compaction", "invocation_id": "root", "tokens_before": 5.0}],
            [{"kind": "sandbox"}],
            [{"kind": "sandbox", "role": "agent", "exit_code": "0"}],
        )
    ),
]


@pytest.mark.parametrize("bundle", MALFORMED, ids=lambda bundle: repr(bundle)[-60:])
def test_a_malformed_bundle_stays_and_the_rest_goes_on(tmp_path, bundle):
    capture(tmp_path, chat("a"))
    before = copy.deepcopy(bundle)
    result = joined(tmp_path, bundle)
    assert result["ng_agent_observations"] is bundle
    assert bundle == before
    assert capture_gaps(result) == [("agent_observation_join_failed", None)]
    codes = [gap["code"] for gap in result["ng_trajectory"]["gaps"]]
    assert codes[0] == "agent_observations_invalid"
    assert result["ng_trajectory"]["gaps"][0]["detail"] == "ValidationError"
    assert len(result["ng_trajectory"]["model_calls"]) == 1


def test_a_nan_in_observations_is_malformed(tmp_path):
    capture(tmp_path, chat("a"))
    result = joined(tmp_path, observed("a", duration_ms=float("nan")))
    assert capture_gaps(result) == [("agent_observation_join_failed", None)]


def test_verifiers_get_their_gaps_before_those_of_the_unowned(tmp_path):
    capture(tmp_path, chat("a"), chat("j"))
    verifiers = [
        {
            "invocation_id": "v",
            "verifier": "judge",
            "model_calls": [{"model_call_id": "j"}, {"model_call_id": "ghost"}],
        }
    ]
    before = copy.deepcopy(verifiers)
    result = joined(tmp_path, observed("a"), ng_verifier_invocations=verifiers)
    assert gaps_of(result) == [
        ("model_call_reference_unmatched", "v", "ghost"),
        (UNOWNED, None, "capture:j:call_index=1"),
    ]
    assert result["ng_verifier_invocations"] == before


@pytest.mark.parametrize("verifiers", [5, {}, [5], [{}], [{"invocation_id": "v", "status": "x"}]])
def test_a_malformed_list_of_verifiers_counts_as_none(tmp_path, verifiers):
    capture(tmp_path, chat("a"))
    result = joined(tmp_path, observed("a"), ng_verifier_invocations=verifiers)
    assert gaps_of(result) == []
    assert result["ng_verifier_invocations"] is verifiers


# --- Claude Code's compactions

ASK = "Your task is to create a detailed summary of this conversation."
PREAMBLE = (
    "This session is being continued from a previous conversation that ran out of context. "
    "The summary below covers the earlier portion of the conversation.\n\n"
)
TAIL = "\n\nRecent messages are preserved verbatim."


def summary_call(call_id, texts=("<analysis>x</analysis>\n\n<summary>\n did\n\n\nit </summary>",)):
    content = [{"type": "text", "text": text} for text in texts]
    exchange = chat(call_id, dialect="messages")
    exchange["request"] = {"messages": [{"role": "user", "content": f"Please. {ASK} Now."}]}
    exchange["response"] = {"id": f"msg_{call_id}", "content": content}
    return exchange


def plain_call(call_id):
    exchange = summary_call(call_id)
    exchange["request"] = {"messages": [{"role": "user", "content": "go on"}]}
    return exchange


def compaction(summary=PREAMBLE + "Summary:\ndid\n\nit", **more):
    return {
        "kind": "context_compaction",
        "invocation_id": "root",
        "outcome": "completed",
        "summary": summary,
        **more,
    }


def claude(directory, *compactions, calls=("a", "c"), gaps=()):
    bundle = {**observed(*calls, more=compactions, gaps=gaps), "source": "claude_code"}
    return joined(directory, bundle)


def tied(result):
    records = result["ng_agent_observations"]["records"]
    owned = [reference["model_call_id"] for reference in records[0]["model_calls"]]
    return owned, [
        [reference["model_call_id"] for reference in one["model_calls"]] for one in records[1:]
    ]


@pytest.mark.parametrize("tail", ["", TAIL])
@pytest.mark.parametrize(
    ("around", "owned"),
    [
        ({}, ["a", "c", "b"]),
        ({"after_model_call": {"model_call_id": "c"}}, ["a", "b", "c"]),
        ({"before_model_call": {"model_call_id": "a"}}, ["a", "b", "c"]),
    ],
)
def test_a_hidden_summary_call_is_tied(tmp_path, tail, around, owned):
    gap = {"code": "compaction_model_call_reference_unavailable", "invocation_id": "root"}
    capture(tmp_path, plain_call("a"), summary_call("b"), plain_call("c"))
    made = compaction(PREAMBLE + "Summary:\ndid\n\nit" + tail, **around)
    result = claude(tmp_path, made, gaps=[gap])
    assert tied(result) == (owned, [["b"]])
    assert gaps_of(result) == []
    assert len(result["ng_trajectory"]["turns"]) == 2


@pytest.mark.parametrize(
    "made",
    [
        compaction(outcome="failed"),
        compaction(None),
        compaction("Summary:\ndid\n\nit"),
        compaction(PREAMBLE + "Summary:\ndid it"),
        compaction(PREAMBLE + "Summary:\ndid\n\nit\n\nand more"),
        compaction(invocation_id="elsewhere"),
        compaction(before_model_call={"model_call_id": "ghost"}),
        compaction(before_model_call={"model_call_id": "c"}),
        compaction(after_model_call={"model_call_id": "a"}),
    ],
)
def test_without_exact_evidence_nothing_is_tied(tmp_path, made):
    capture(tmp_path, plain_call("a"), summary_call("b"), plain_call("c"))
    owned, inside = tied(claude(tmp_path, made))
    assert (owned, inside) == (["a", "c"], [[]])


@pytest.mark.parametrize(
    "fields",
    [
        {"dialect": "chat"},
        {"status_code": 500},
        {"status_code": None},
        {"error_category": "upstream_error"},
        {"request": {"messages": [{"role": "assistant", "content": ASK}]}},
        {"request": {"messages": [{"role": "user", "content": "summarise"}]}},
        {"model_call_id": None, "response": {"content": summary_call("b")["response"]["content"]}},
    ],
)
def test_another_call_is_no_candidate(tmp_path, fields):
    capture(tmp_path, plain_call("a"), {**summary_call("b"), **fields}, plain_call("c"))
    assert tied(claude(tmp_path, compaction())) == (["a", "c"], [[]])


def test_several_candidates_are_said(tmp_path):
    capture(tmp_path, plain_call("a"), summary_call("b"), summary_call("d"), plain_call("c"))
    result = claude(tmp_path, compaction())
    assert tied(result) == (["a", "c"], [[]])
    assert gaps_of(result)[0] == (
        "compaction_model_call_match_ambiguous",
        "root",
        "candidate_count=2",
    )


def test_of_another_source_nothing_is_tied(tmp_path):
    capture(tmp_path, line(plain_call("a")), summary_call("b"), plain_call("c"))
    result = joined(tmp_path, observed("a", "c", more=[compaction()]))
    assert tied(result) == (["a", "c"], [[]])
