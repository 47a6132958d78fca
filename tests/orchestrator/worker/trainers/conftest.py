import pytest

from foreign_trials import ForeignTrials


@pytest.fixture
def lab(tmp_path):
    """Makes a foreign trial of a script's body; further arguments are those of :class:`ForeignTrials`."""
    return lambda *arguments, **options: ForeignTrials(tmp_path, *arguments, **options)
