"""The scheduler alone: whatever happens, each row drawn has exactly one outcome."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollfold.dispatch.attempt import INTERRUPTED, NEVER_STARTED
from rollfold.dispatch.budget import Budget
from rollfold.dispatch.engine import Engine, Outcome

TICK_S = 0.001


@st.composite
def scenarios(draw):
    return {
        "rows": draw(st.integers(0, 30)),
        "ticks": draw(st.lists(st.integers(0, 6), min_size=1, max_size=8)),
        "bad": draw(st.integers(2, 9)),
        "concurrency": draw(st.integers(1, 8)),
        "held": draw(st.integers(1, 20)),
        "permits": draw(st.none() | st.integers(1, 4)),
        "budget": draw(st.none() | st.integers(0, 30)),
        "drain": draw(st.none() | st.integers(0, 20)),
        "interrupt": draw(st.none() | st.integers(0, 20)),
        "pushed": draw(st.integers(0, 3)),
    }


async def play(scenario):
    running = peak = 0
    loop = asyncio.get_running_loop()

    async def send(sent):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        try:
            await asyncio.sleep(TICK_S * scenario["ticks"][sent.row % len(scenario["ticks"])])
            if sent.row % 5 == 4:
                raise RuntimeError("a send that breaks")
            sent.reply, sent.seconds = {"row": sent.row}, TICK_S
        finally:
            running -= 1

    async def finish(sent):
        await asyncio.sleep(0)
        if sent.row % 7 == 6:
            raise RuntimeError("a finish that breaks")
        return Outcome(sent.row, {"reply": sent.reply})

    def check(row):
        return Outcome(row, {"reply": "refused"}) if row % scenario["bad"] == 0 else None

    semaphore = None if scenario["permits"] is None else asyncio.Semaphore(scenario["permits"])
    engine = Engine(
        iter(range(scenario["rows"])),
        check=check,
        send=send,
        finish=finish,
        concurrency=scenario["concurrency"],
        max_held=scenario["held"],
        semaphore=semaphore,
        budget=None if scenario["budget"] is None else Budget(TICK_S * scenario["budget"], None),
    )
    engine.start()
    for name in ("drain", "interrupt"):
        if scenario[name] is not None:
            loop.call_later(TICK_S * scenario[name], getattr(engine, name))
    outcomes = []
    pushed = 0
    while (outcome := await engine.next()) is not None:
        outcomes.append(outcome)
        if pushed < scenario["pushed"]:
            engine.push(1_000 + pushed, after_s=TICK_S * (pushed % 2))
            pushed += 1
    assert engine.is_over
    assert running == 0
    assert peak <= scenario["concurrency"]
    if semaphore is not None:
        assert peak <= scenario["permits"]
        assert semaphore._value == scenario["permits"]
    await engine.aclose()
    return outcomes, pushed


@settings(max_examples=150, deadline=None)
@given(scenarios())
def test_each_row_has_exactly_one_outcome(scenario):
    outcomes, pushed = asyncio.run(asyncio.wait_for(play(scenario), 20))
    expected = [*range(scenario["rows"]), *(1_000 + n for n in range(pushed))]
    assert sorted(outcome.row for outcome in outcomes) == expected
    ended = any(scenario[name] is not None for name in ("budget", "drain", "interrupt"))
    for outcome in outcomes:
        reply = outcome.result.get("reply")
        if outcome.row % 7 == 6 and reply != "refused":
            assert isinstance(outcome.error, RuntimeError)
        elif reply in (INTERRUPTED, NEVER_STARTED):
            assert ended
        elif isinstance(reply, dict):
            assert reply == {"row": outcome.row}


@settings(max_examples=60, deadline=None)
@given(scenarios(), st.integers(0, 25))
def test_leaving_at_any_point_leaves_nothing_running(scenario, taken):
    async def leave():
        before = asyncio.all_tasks()
        semaphore = asyncio.Semaphore(3)
        active = 0

        async def send(sent):
            nonlocal active
            active += 1
            try:
                await asyncio.sleep(TICK_S * scenario["ticks"][sent.row % len(scenario["ticks"])])
                sent.reply = {}
            finally:
                active -= 1

        async def finish(sent):
            return Outcome(sent.row, {})

        engine = Engine(
            iter(range(scenario["rows"])),
            check=lambda _: None,
            send=send,
            finish=finish,
            concurrency=scenario["concurrency"],
            max_held=scenario["held"],
            semaphore=semaphore,
        )
        engine.start()
        for _ in range(taken):
            if await engine.next() is None:
                break
        await engine.aclose()
        await asyncio.sleep(0)
        assert active == 0
        assert semaphore._value == 3
        assert asyncio.all_tasks() == before
        assert await engine.next() is None

    asyncio.run(asyncio.wait_for(leave(), 20))


@pytest.mark.parametrize("ending", ["drain", "interrupt"])
@pytest.mark.parametrize("permits", [None, 1, 3])
def test_an_end_before_a_task_took_its_first_step_ends_the_run(ending, permits):
    """A task that is cancelled before it began runs none of its code, not even a finally."""

    async def play_it():
        async def send(sent):
            sent.reply = {}

        async def finish(sent):
            return Outcome(sent.row, {"reply": sent.reply})

        semaphore = None if permits is None else asyncio.Semaphore(permits)
        engine = Engine(
            iter(range(5)),
            check=lambda _: None,
            send=send,
            finish=finish,
            concurrency=2,
            max_held=8,
            semaphore=semaphore,
            budget=None,
        )
        engine.start()
        getattr(engine, ending)()
        outcomes = []
        while (outcome := await engine.next()) is not None:
            outcomes.append(outcome.row)
        assert engine.is_over
        if semaphore is not None:
            assert semaphore._value == permits
        await engine.aclose()
        return outcomes

    assert sorted(asyncio.run(asyncio.wait_for(play_it(), 10))) == list(range(5))
