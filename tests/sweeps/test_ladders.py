"""The presets are the measured ladder, and inline shapes get sensible defaults."""

import pytest

from model.accounting import count_parameters
from model.config import ConfigurationError, ModelConfig
from sweeps import ladders


@pytest.mark.parametrize(
    ("name", "n_params"),
    [
        ("tiny-25k", 25_088),
        ("tiny-55k", 55_296),
        ("tiny-83k", 82_944),
        ("tiny-150k", 150_528),
        ("tiny-200k", 200_704),
    ],
)
def test_a_preset_has_the_parameters_that_were_measured(name: str, n_params: int) -> None:
    shape = ladders.PRESETS[name]
    assert count_parameters(ModelConfig(shape, vocabulary_size=1024)).matrices == n_params
    assert shape.head_width == 16


@pytest.mark.parametrize(("width", "hidden"), [(32, 88), (48, 128), (64, 176), (192, 512), (256, 688)])
def test_the_hidden_width_is_eight_thirds_rounded_up_to_eights(width: int, hidden: int) -> None:
    assert ladders.default_feed_forward(width) == hidden


@pytest.mark.parametrize(("width", "heads"), [(16, 1), (128, 8), (192, 3), (2048, 32)])
def test_heads_are_of_16_channels_up_to_width_128_and_of_64_above(width: int, heads: int) -> None:
    assert ladders.default_heads(width) == heads


@pytest.mark.parametrize("width", [50, 200])
def test_a_width_without_default_heads_is_refused(width: int) -> None:
    with pytest.raises(ConfigurationError, match=f"width is {width}; allowed: a multiple of"):
        ladders.shape(width, 2)


def test_given_parts_of_a_shape_are_kept() -> None:
    shape = ladders.shape(60, 2, heads=6, kv_heads=3, feed_forward=100)
    assert (shape.heads, shape.kv_heads, shape.feed_forward) == (6, 3, 100)
