"""Waiting for writers that announce nothing (contract, section 10)."""

import asyncio
import json
import os
import threading
import time

import pytest

from rollfold import (
    enrich_run_result,
    enrich_run_result_async,
    enrich_run_result_json,
    enrich_run_results,
    enrich_run_results_json,
)
from tests.rollouts import ROW, capture, capture_gaps, chat, ids_of, line, result_of

NOT_QUIESCENT = ("model_call_capture_not_quiescent", None)


def as_dict(*args, **kwargs):
    return enrich_run_result(*args, **kwargs)


def as_json(*args, **kwargs):
    return json.loads(enrich_run_result_json(*args, **kwargs))


def as_dicts(row, result, **kwargs):
    (enriched,) = enrich_run_results([(row, result)], **kwargs)
    return enriched


def as_jsons(row, result, **kwargs):
    (text,) = enrich_run_results_json([(row, result)], **kwargs)
    return json.loads(text)


FORMS = [as_dict, as_json, as_dicts, as_jsons]


def options(directory, **more):
    return {"capture_dirs": [directory], "observability_enabled": True, **more}


def rest(path, seconds=3600.0):
    """Make a file one that was last written so long ago."""
    at = time.time() - seconds
    os.utime(path, (at, at))


def growing(path, started):
    """Append calls, one soon after the other."""
    for name in "bcdef":
        with path.open("ab") as file:
            file.write(line(chat(name)) + b"\n")
        started.set()
        time.sleep(0.05)


@pytest.mark.parametrize("form", [as_dict, as_jsons])
def test_a_foreign_file_is_read_when_it_rests(tmp_path, form):
    path = capture(tmp_path, chat("a"))
    started = threading.Event()
    writer = threading.Thread(target=growing, args=(path, started))
    writer.start()
    started.wait()
    given = options(tmp_path, quiescence_timeout_s=120.0, foreign_settle_s=1.0)
    result = form(ROW, result_of("a"), **given)
    writer.join()
    assert [name for name, _ in ids_of(result)] == list("abcdef")
    assert capture_gaps(result) == []


@pytest.mark.parametrize("form", [as_json, as_dicts])
def test_one_that_does_not_rest_in_time_is_said(tmp_path, form):
    capture(tmp_path, chat("a"))
    given = options(tmp_path, quiescence_timeout_s=0.05, foreign_settle_s=3600.0)
    assert capture_gaps(form(ROW, result_of("a"), **given)) == [NOT_QUIESCENT]


@pytest.mark.parametrize("form", FORMS)
async def test_in_a_loop_nothing_waits_and_what_does_not_rest_is_said(tmp_path, form):
    path = capture(tmp_path, chat("a"))
    given = options(tmp_path, quiescence_timeout_s=3600.0, foreign_settle_s=3600.0)
    result = form(ROW, result_of("a"), **given)
    assert ids_of(result) == [("a", 0)]
    assert capture_gaps(result) == [NOT_QUIESCENT]
    rest(path, 7200.0)
    result = form(ROW, result_of("a"), **given)
    assert capture_gaps(result) == []


@pytest.mark.parametrize("form", FORMS)
async def test_in_a_loop_a_file_that_does_not_rest_is_not_deleted(tmp_path, form):
    path = capture(tmp_path, chat("a"))
    given = options(tmp_path, foreign_settle_s=3600.0, delete_capture=True)
    form(ROW, result_of("a"), **given)
    assert path.exists()
    rest(path, 7200.0)
    form(ROW, result_of("a"), **given)
    assert not path.exists()


async def test_the_async_form_waits_for_the_rest(tmp_path):
    path = capture(tmp_path, chat("a"))
    started = threading.Event()
    writer = threading.Thread(target=growing, args=(path, started))
    writer.start()
    await asyncio.to_thread(started.wait)
    given = options(tmp_path, quiescence_timeout_s=120.0, foreign_settle_s=1.0)
    result = await enrich_run_result_async(ROW, result_of("a"), **given)
    writer.join()
    assert [name for name, _ in ids_of(result)] == list("abcdef")
    assert capture_gaps(result) == []


async def test_the_async_form_says_what_did_not_rest(tmp_path):
    capture(tmp_path, chat("a"))
    given = options(tmp_path, quiescence_timeout_s=0.05, foreign_settle_s=3600.0)
    result = await enrich_run_result_async(ROW, result_of("a"), **given)
    assert capture_gaps(result) == [NOT_QUIESCENT]


async def test_a_clock_that_goes_ahead_is_outwaited(tmp_path):
    """Another host wrote the file, an hour ahead of us: only its growth counts."""
    rest(capture(tmp_path, chat("a")), -3600.0)
    given = options(tmp_path, quiescence_timeout_s=120.0, foreign_settle_s=0.05)
    result = await enrich_run_result_async(ROW, result_of("a"), **given)
    assert capture_gaps(result) == []
    result = await asyncio.to_thread(as_dict, ROW, result_of("a"), **given)
    assert capture_gaps(result) == []
