"""How large a trial's metrics.jsonl becomes, reckoned from what it holds."""

from model.config import RunOptions, Trial
from model.strategies import NORMED_MAPS, ScaleVectorStrategy

BYTES_PER_STEP = 170
"""One row of metrics.jsonl without statistics."""
BYTES_PER_VALUE = 10
"""One of a list of values by layer."""
BYTES_PER_STATISTIC = 70
"""The two names of a statistic, and its value over all layers."""
STATISTICS = 3
"""Of each kind of scale vector: mean, deviation, share near zero."""
BYTES_PER_QUANTITY = 30
"""The name of a quantity."""
QUANTITIES = 12
"""Of each kind of effective matrix: movement, eigenvalues, what is conserved."""
SHARPNESS_BYTES = 180


def log_bytes(trial: Trial, options: RunOptions) -> int:
    """Bytes of metrics.jsonl when ``trial`` is done."""
    strategy, values = trial.model.scale_vectors, BYTES_PER_VALUE * trial.model.shape.layers
    n_statistics = (trial.steps // options.metrics_steps + 1) * STATISTICS * _kinds_of_vectors(strategy)
    n_measured = trial.steps // options.measure_steps + 2
    size = BYTES_PER_STEP * trial.steps + n_statistics * (BYTES_PER_STATISTIC + values)
    if "preconditioner" in options.measure:
        size += n_measured * QUANTITIES * _kinds_of_matrices(strategy) * (BYTES_PER_QUANTITY + values)
    if "sharpness" in options.measure:
        size += n_measured * SHARPNESS_BYTES
    return size


def _kinds_of_vectors(strategy: ScaleVectorStrategy) -> int:
    """Kinds of scale vectors: shared or own, on the inputs, on the outputs, and the final one."""
    inputs = {"none": 0, "shared": 2 + 1, "heterogeneous": len(NORMED_MAPS) + 1}[strategy.branches]
    return inputs + (len(strategy.dual_maps) if strategy.is_dual else 0)


def _kinds_of_matrices(strategy: ScaleVectorStrategy) -> int:
    return (2 if strategy.branches == "shared" else len(NORMED_MAPS)) + 1
