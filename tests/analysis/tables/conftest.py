"""The rows that tables are made of."""

import numpy as np
import pandas as pd
import pytest
from tests.shown_tables import EFFECTS

STRATEGIES = {
    "baseline": ("shared", "input", "none", "all"),
    "none": ("none", "input", "none", "all"),
    "unified": ("heterogeneous", "dual-normalized", "or", "input"),
    "no-decay": ("shared", "input", "none", "none"),
    "product": ("shared", "input", "product", "all"),
}
FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")


@pytest.fixture(scope="session")
def source(sweep):
    """A sweep's rows with everything that a table may ask for."""

    def make(effects: dict[str, float] = EFFECTS, **options) -> pd.DataFrame:
        rows = sweep(effects, **options)
        strategies = pd.DataFrame([STRATEGIES[arm] for arm in rows["arm"]], columns=list(FIELDS))
        rows = pd.concat([rows, strategies], axis=1).assign(
            optimizer="adamw",
            schedule="cosine",
            architecture="llama",
            learning_rate=np.where(rows["arm"] == "none", 0.008, 0.016),
            matrix_decay=0.1,
            device="cuda",
            micro_batch=0,
            steps=100,
            peak_memory_bytes=2.0**30,
            n_params_total=rows["n_params"] + 1000,
            n_params_scale_vectors=np.where(rows["arm"] == "none", 0, 160),
        )
        slow = np.where(rows["arm"] == "unified", 1.1, 1.0) * (1 + 0.01 * rows["seed"].astype(float))
        return rows.assign(wall_s=10.0 * slow, tokens_per_s=rows["n_tokens"] / (10.0 * slow))

    return make


@pytest.fixture
def beside_two_precisions(sweep):
    """Every arm has one precision, the reference float32; ``both`` has bfloat16 too."""

    def make(effects: dict[str, float], others: dict[str, str]) -> pd.DataFrame:
        rows = sweep({"baseline": 0.0, "both": 0.01, **effects}, noise=1e-3)
        rows = rows.assign(precision=[others.get(arm, "float32") for arm in rows["arm"]])
        again = rows[rows["arm"] == "both"]
        return pd.concat([rows, again.assign(precision="bfloat16", loss=again["loss"] + 0.1)])

    return make
