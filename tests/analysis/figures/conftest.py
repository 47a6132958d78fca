"""Training curves for the tests of figures."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="session")
def curves() -> pd.DataFrame:
    """Of three arms at two rungs, one seed each."""
    runs = [(arm, rung) for arm in ("baseline", "none", "unified") for rung in ("25k", "55k")]
    tokens = np.arange(1, 200) * 1024
    parts = [
        pd.DataFrame({"trial_id": f"{arm}{rung}0", "arm": arm, "rung": rung, "seed": 0, "tokens": tokens})
        for arm, rung in runs
    ]
    return pd.concat(parts, ignore_index=True).assign(loss=5.0)
