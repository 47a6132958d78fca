"""Scale-vector strategies for property tests: every field but those of a mixture, and with them."""

from dataclasses import replace

from hypothesis import strategies as st

from scalevec.model.strategies import ALL_MAPS, CHOICES, NORMED_MAPS, ScaleVectorStrategy


def maps_among(allowed: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """A set of maps in any order."""
    return st.lists(st.sampled_from(allowed), unique=True).map(tuple)


any_strategy = st.builds(
    ScaleVectorStrategy,
    branches=st.sampled_from(CHOICES["branches"]),
    heterogeneous_maps=maps_among(NORMED_MAPS),
    placement=st.sampled_from(CHOICES["placement"]),
    dual_maps=maps_among(ALL_MAPS),
    normalize_per_head=st.booleans(),
    normalize_head=st.booleans(),
    magnitudes=st.sampled_from(CHOICES["magnitudes"]),
    vector_weight_decay=st.sampled_from([None, 0.0, 0.1, 0.01]),
    decay_direction=st.booleans(),
    reparameterization=st.sampled_from(CHOICES["reparameterization"]),
    weight_decay=st.sampled_from(CHOICES["weight_decay"]),
    heads=st.sampled_from(CHOICES["heads"]),
    input_role_maps=maps_among(ALL_MAPS),
    learning_rate_factor=st.sampled_from([1.0, 2.0]),
)
any_strategy_of_a_mixture = st.builds(
    replace,
    any_strategy,
    experts=st.sampled_from(CHOICES["experts"]),
    router=st.sampled_from(CHOICES["router"]),
)
