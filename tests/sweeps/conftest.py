"""The quickstart sweep as the text that tests change, and a corpus that does not exist."""

from collections.abc import Callable
from typing import Any

import pytest

from scalevec import sweeps
from scalevec.sweeps.expansion.expand import Cell, CorpusFacts, expand


@pytest.fixture
def quickstart() -> str:
    return sweeps.shipped("quickstart").read_text()


@pytest.fixture
def corpus() -> CorpusFacts:
    return CorpusFacts(fingerprint="c0" * 32, vocabulary_size=1024, training_tokens=3_000_000)


@pytest.fixture
def changed(quickstart: str) -> Callable[..., str]:
    """The quickstart's text with one part replaced by another."""

    def change(old: str, new: str) -> str:
        assert quickstart.count(old) == 1, old
        return quickstart.replace(old, new)

    return change


@pytest.fixture
def line_of(quickstart: str) -> Callable[[str], int]:
    """The line of the quickstart in which a text stands."""
    return lambda text: quickstart[: quickstart.index(text)].count("\n") + 1


@pytest.fixture
def refusal() -> Callable[[str], str]:
    """The message with which a sweep file is refused."""

    def refuse(text: str) -> str:
        with pytest.raises(sweeps.SweepError) as caught:
            sweeps.loads(text, "my.yaml")
        return str(caught.value)

    return refuse


@pytest.fixture
def cells_of(corpus: CorpusFacts) -> Callable[..., list[Cell]]:
    """The cells of a sweep given by its sections; what is left out is small."""

    def cells(**sections: Any) -> list[Cell]:
        return expand(sweeps.loads(_as_text(sections), "my.yaml"), corpus)

    return cells


def _as_text(sections: dict[str, Any]) -> str:
    import yaml

    small = {"name": "small", "ladder": ["tiny-25k"], "arms": {"baseline": {"scale_vectors": "baseline"}}}
    return yaml.safe_dump(small | sections, sort_keys=False)
