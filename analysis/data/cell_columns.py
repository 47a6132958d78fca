"""The columns that say of which cell a trial is: those that every sweep has, and the fields of its grid."""

from collections.abc import Sequence

import pandas as pd

from scalevec.analysis.data.tidy import require_column

CELL_COLUMNS = ("rung", "n_tokens", "optimizer", "schedule", "corpus", "architecture")
"""With the further setting columns these name a cell; with the seed, a pair."""
ARM_COLUMNS = ("optimizer", "schedule", "architecture")
"""Those of them that an arm may choose for itself; then they are no part of its cells."""
GRID_COLUMNS = ("learning_rate", "precision")
"""Columns of every row that a sweep may also run as a grid; then a pair agrees in them too."""
VECTOR_NORMS, OWN_FIELD = "vector_rms_", "field_"
"""Columns with these prefixes hold root mean squares of scale vectors, and fields of a foreign trainer."""
# The columns of a tidy row of a sweep; any other column of such a row is a field of the sweep's grid.
# fmt: off
_SWEEP_COLUMNS = frozenset((
    "trial_id", "sweep", "arm", "stage", "rung", "n_params", "n_params_embedding", "n_params_scale_vectors",
    "n_params_total", "n_tokens", "tokens_per_parameter", "epochs", "flops", "flops_counted", "loss",
    "loss_validation", "loss_initial", "seed", "cluster", "optimizer", "schedule", "architecture", "corpus",
    "learning_rate", "lr_status", "carried_check", "status", "cause", "micro_batch", "world_size", "steps",
    "wall_s", "tokens_per_s", "device", "arithmetic", "resumes", "step_s_median", "mfu", "data_s",
    "checkpoints_s", "evaluation_s", "planned_s", "precision", "vector_branches", "vector_placement",
    "vector_reparameterization", "vector_decay", "vector_gain", "matrix_decay", "n_params_active",
    "trunk_step", "peak_memory_bytes", "allocated_bytes", "diverged_at_step", "test_tokens",
    "validation_tokens", "bytes_per_token", "scale_vectors", "stream", "loss_blocks", "block_tokens",
    "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version", "commit",
    "local_changes", "identity_version",
))
# fmt: on


def setting_columns(table: pd.DataFrame, settings: Sequence[str] | None) -> list[str]:
    """Further columns that a pair must agree in: those given, or the grid fields of a sweep's tidy rows.

    Raises :class:`DataError` for a column that is not there.
    """
    if settings is not None:
        for name in settings:
            require_column(table, name, "settings")
        return list(settings)
    of_a_sweep = {"trial_id", "sweep"} <= set(table.columns)
    return [
        name
        for name in table.columns
        if of_a_sweep and name not in _SWEEP_COLUMNS and not name.startswith((VECTOR_NORMS, OWN_FIELD))
    ]
