"""How large a trial's metrics.jsonl becomes, reckoned from what it holds."""

from model.config import RunOptions, Trial
from model.strategies import NORMED_MAPS, ScaleVectorStrategy

BYTES_PER_STEP = 170
"""One row of metrics.jsonl without statistics."""
BYTES_PER_VALUE = 8
"""One of a list of values by layer."""
BYTES_PER_NAME = 110
"""The two names of a statistic, its value over all layers, and what stands around its list."""
STATISTICS = 3
"""Of each kind of scale vector: mean, deviation, share near zero."""
QUANTITIES = 12
"""Of each kind of effective matrix: movement, eigenvalues, what is conserved."""
SHARPNESS_BYTES = 180


def log_bytes(trial: Trial, options: RunOptions) -> int:
    """Bytes of metrics.jsonl when ``trial`` is done."""
    strategy, layers = trial.model.scale_vectors, trial.model.shape.layers
    by_layer = BYTES_PER_NAME + BYTES_PER_VALUE * layers
    statistics = (trial.steps // options.metrics_steps + 1) * STATISTICS * _kinds_of_vectors(strategy)
    measured = trial.steps // options.measure_steps + 2
    moved, sharp = ("preconditioner" in options.measure), ("sharpness" in options.measure)
    quantities = moved * measured * QUANTITIES * _kinds_of_matrices(strategy)
    sharpness = sharp * measured * SHARPNESS_BYTES
    return BYTES_PER_STEP * trial.steps + (statistics + quantities) * by_layer + sharpness


def _kinds_of_vectors(strategy: ScaleVectorStrategy) -> int:
    """Kinds of scale vectors: shared or own, on the inputs, on the outputs, and the final one."""
    inputs = {"none": 0, "shared": 2 + 1, "heterogeneous": len(NORMED_MAPS) + 1}[strategy.branches]
    return inputs + (len(strategy.dual_maps) if strategy.is_dual else 0)


def _kinds_of_matrices(strategy: ScaleVectorStrategy) -> int:
    return (2 if strategy.branches == "shared" else len(NORMED_MAPS)) + 1
