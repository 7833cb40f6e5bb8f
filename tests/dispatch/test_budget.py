"""The drain margin: given, or the 75th percentile of what was seen."""

from hypothesis import given
from hypothesis import strategies as st

from rollfold.dispatch.budget import DURATIONS_KEPT, Budget


def test_a_given_margin_stays():
    budget = Budget(100, 7.0)
    budget.note(50.0)
    assert budget.margin_s == 7.0
    assert Budget(100, None).margin_s == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_the_margin_is_at_least_three_quarters_of_the_durations(durations):
    budget = Budget(100, None)
    for seconds in durations:
        budget.note(seconds)
    assert budget.margin_s in durations
    assert sum(d <= budget.margin_s for d in durations) * 4 >= len(durations) * 3
    assert sum(d > budget.margin_s for d in durations) * 4 <= len(durations)


def test_old_durations_are_forgotten():
    budget = Budget(100, None)
    for seconds in [1000.0] * 100 + [float(n % 7) for n in range(DURATIONS_KEPT)]:
        budget.note(seconds)
    assert budget.margin_s <= 6.0
    assert len(budget._sorted) == DURATIONS_KEPT
