"""The nearest neighbour is the trial with the fewest differing fields."""

from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.identity import differences
from scalevec.orchestrator.commands.look.explain import nearest

VALUES = st.none() | st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2)
FIELDS = st.dictionaries(
    st.sampled_from("abc"), VALUES | st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), max_size=3
)


@given(FIELDS, st.dictionaries(st.sampled_from("pqrs"), FIELDS))
def test_nobody_is_nearer_than_the_nearest(fields, others):
    trials = {name: other for name, other in others.items() if name == "p" or len(differences(fields, other))}
    candidates = {name: len(differences(fields, other)) for name, other in trials.items() if name != "p"}
    best = min(candidates.values(), default=None)
    first = min((name for name, count in candidates.items() if count == best), default=None)
    answer = nearest("p", fields, sorted(trials.items()))
    assert (answer["trial_id"], len(answer["differences"])) == (first, best or 0)
