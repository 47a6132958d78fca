"""The nearest neighbour is the trial with the fewest differing fields."""

from hypothesis import given
from hypothesis import strategies as st

from model.identity import differences
from orchestrator.neighbours import distance, nearest

VALUES = st.none() | st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2)
FIELDS = st.dictionaries(
    st.sampled_from("abc"), VALUES | st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), max_size=3
)


@given(FIELDS, FIELDS)
def test_the_distance_is_the_number_of_differences(one, other):
    assert distance(one, other) == len(differences(one, other))


@given(FIELDS, FIELDS, st.integers(0, 4))
def test_a_limit_changes_no_distance_within_it(one, other, limit):
    exact = distance(one, other)
    found = distance(one, other, limit)
    assert found == exact if exact <= limit else found > limit


@given(FIELDS, st.dictionaries(st.sampled_from("pqrs"), FIELDS))
def test_nobody_is_nearer_than_the_nearest(own, others):
    others = {name: fields for name, fields in others.items() if name == "p" or distance(own, fields)}
    found = nearest("p", own, sorted(others.items()))
    candidates = {name: distance(own, fields) for name, fields in others.items() if name != "p"}
    best = min(candidates.values(), default=None)
    assert found == min((name for name, count in candidates.items() if count == best), default=None)
