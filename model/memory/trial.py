"""The memory of a trial: what it holds throughout, and the most that any part of it needs beside that."""

from dataclasses import dataclass
from functools import lru_cache

from scalevec.model.accounting import ATTENTION_MAPS, FEED_FORWARD_MAPS, count_parameters, map_shapes
from scalevec.model.config import ModelConfig, RunOptions, Trial
from scalevec.model.memory.passes import MicroBatch, recorded
from scalevec.model.memory.tape import Peak, forward_peak, training_peak

FLOAT_BYTES = 4
"""Of a weight, a gradient and an entry of the optimizer's state."""
BYTES_OF = {"float32": (4, 4), "bfloat16": (2, 4), "bfloat16-residual": (2, 2)}
"""Of an entry of a matrix product and of the residual stream, by the precision of the trial."""
FRAMEWORK_BYTES = {"cpu": 3e8, "cuda": 1.2e9}
"""The framework's own share: of a process on the CPU the interpreter and torch's libraries, as seen; on a GPU
the context, the libraries' workspaces and what the allocator cannot use, a rough figure."""
SHARPNESS_TOKENS = 2048
"""Targets in the batch of a run's sharpness, or one sequence where that is longer."""
SHARPNESS_VECTORS = 32 + 4
"""Vectors of the parameters' size: the basis of up to 32 products, and those of one product."""
SHARPNESS_GRAPH = {"pass": 4.5, "weights": 7.0, "logits": 6.0}
"""What its product with the Hessian keeps: so often what a training pass takes, the attention weights of all
pairs of tokens, and the logits; as seen, within a quarter."""
PRECONDITIONER_ARRAYS = 9
"""Of the matrices' size, kept over a step: values, gradient, predicted movement, decay; as seen."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the device of a trial.

    parameters, optimizer: held throughout, the optimizer's state from the first step on.
    training: the most in forward and backward passes beside these, gradients included.
    step: the most in the optimizer's step, gradients included.
    evaluation: the most in a forward pass alone.
    measurements: the most along the run, gradients included; 0 without any.
    copy: what a checkpoint writes while the training goes on, where that is in the device's memory.
    framework: beside all arrays.
    start: the most while the model is built, before it is shared out.
    """

    parameters: int
    optimizer: int
    training: int
    step: int
    evaluation: int
    measurements: int
    copy: int
    framework: int
    start: int = 0

    @property
    def arrays(self) -> int:
        """The most that all arrays take at one time."""
        at_most = max(self.training, self.step, self.evaluation, self.measurements)
        return max(self.parameters + self.optimizer + self.copy + at_most, self.start)

    @property
    def total(self) -> int:
        """All of it."""
        return self.arrays + self.framework


def memory_of(trial: Trial, options: RunOptions) -> Memory:
    """The memory of ``trial`` as ``options`` run it.

    Counted are the operations of the forward pass with what each saves for the backward pass, in the types
    and with the attention kernel of the device; gradients; the optimizer's state and what its step takes; the
    logits of a slice. The tests hold it against allocations on the CPU.
    """
    part = trial.batch_sequences // options.processes
    sequences = min(options.micro_batch or part, part)
    micro = _micro_batch(trial, sequences * trial.sequence_length, options)
    # In micro-batches gradients are held between passes, and throughout where processes sum them.
    held = sequences < part or (options.processes > 1 and not options.shard)
    training = _training(trial.model, micro, held, options.recompute == "block")
    holders = options.processes if options.shard else 1
    entire = FLOAT_BYTES * count_parameters(trial.model).total
    parameters, state = entire // holders, FLOAT_BYTES * _state_entries_of_a_process(trial, options)
    gathered, read = (_gathered(trial.model, n) if options.shard else 0 for n in (2, 1))
    gradients = entire if held else 0  # of shards too: they are exchanged once a step
    # Folded once for all micro-batches, weights are held in the type of products.
    folds_once = options.compiled and sequences < part and not options.shard
    folded = micro.narrow * count_parameters(trial.model).matrices_total if folds_once else 0
    return Memory(
        parameters=parameters,
        optimizer=state,
        training=round(
            training.size - training.parameter_gradients * (1 - 1 / holders) + gradients + gathered + folded
        ),
        step=round(_step(trial, options, parameters)),
        evaluation=round(_evaluation(trial, options) + read),
        measurements=round(_measurements(trial, options)),
        copy=entire + FLOAT_BYTES * state_entries(trial) if options.device == "cpu" else 0,
        framework=round(FRAMEWORK_BYTES[options.device]),
        start=entire + parameters if options.shard and options.device == "cpu" else 0,
    )


def _gathered(model: ModelConfig, arrays: int) -> float:
    """Of sharded parameters: two blocks in whole at a time, of each weight so many ``arrays``.

    These are 2 with gradients. Beside them what is outside of the blocks, throughout a pass.
    """
    counts = count_parameters(model)
    return FLOAT_BYTES * (2 * arrays * counts.matrices_total / model.shape.layers + counts.embedding)


def _takes_matrices(trial: Trial) -> bool:
    return trial.optimizer.registered.matrices_only


def _state_entries_of_a_process(trial: Trial, options: RunOptions) -> int:
    """Of the optimizer's state; where parameters are shared out, with the matrices that it steps whole."""
    entries, matrices = state_entries(trial), count_parameters(trial.model).matrices_total
    if not options.shard:
        return entries
    return (entries + (matrices if _takes_matrices(trial) else 0)) // options.processes


def _step(trial: Trial, options: RunOptions, gradients: int) -> float:
    """Gradients, and beside them what a step takes for itself or processes exchange."""
    of_all, of_largest = trial.optimizer.registered.working
    counts, n = count_parameters(trial.model), options.processes
    largest = FLOAT_BYTES * max(rows * columns for rows, columns in matrix_sides(trial.model))
    working = FLOAT_BYTES * of_all * counts.total / (n if options.shard else 1) + of_largest * largest
    # Of matrices that a process steps for all: their gradients.
    matrices = FLOAT_BYTES * counts.matrices_total / n if options.shard and _takes_matrices(trial) else 0.0
    return gradients + working + matrices


@lru_cache(maxsize=1024)
def _training(model: ModelConfig, micro: MicroBatch, accumulates: bool, recomputes: bool) -> Peak:
    return training_peak(recorded(model, micro), accumulates=accumulates, recomputes=recomputes)


@lru_cache(maxsize=1024)
def _forward(model: ModelConfig, micro: MicroBatch) -> float:
    return forward_peak(recorded(model, micro, trains=False))


def _evaluation(trial: Trial, options: RunOptions) -> float:
    length = trial.sequence_length
    tokens = options.evaluated_at_once(trial) * length
    if trial.evaluation_tokens:
        tokens = min(tokens, max(trial.evaluation_tokens, length))
    return _forward(trial.model, _micro_batch(trial, tokens, options))


def _micro_batch(trial: Trial, tokens: int, options: RunOptions) -> MicroBatch:
    return MicroBatch(tokens, trial.sequence_length, *BYTES_OF[trial.precision], options.device)


def state_entries(trial: Trial) -> int:
    """Numbers in the state of the trial's optimizer."""
    counts, optimizer = count_parameters(trial.model), trial.optimizer.registered
    of_matrix, of_other = optimizer.state_per_parameter
    matrices = counts.matrices_total
    entries = of_matrix * matrices + of_other * (counts.total - matrices)
    if optimizer.state_of_matrix is not None:
        entries += sum(
            n * optimizer.state_of_matrix(*sides) for sides, n in matrix_sides(trial.model).items()
        )
    return round(entries)


def matrix_sides(model: ModelConfig) -> dict[tuple[int, int], int]:
    """(rows, columns) of the matrices of all blocks -> how many there are, those of each expert included."""
    shape, experts = model.shape, model.experts
    counts: dict[tuple[int, int], int] = {}

    def add(hidden: int, names: tuple[str, ...], times: int) -> None:
        sizes = map_shapes(shape, hidden)
        for name in names:
            counts[sizes[name]] = counts.get(sizes[name], 0) + times

    add(shape.feed_forward, ATTENTION_MAPS, shape.layers)
    mixtures = 0 if experts is None else shape.layers - experts.dense_layers
    add(shape.feed_forward, FEED_FORWARD_MAPS, shape.layers - mixtures)
    if experts is not None:
        add(experts.feed_forward, FEED_FORWARD_MAPS, mixtures * experts.n_experts)
        if experts.shared_experts:
            add(experts.shared_hidden, FEED_FORWARD_MAPS, mixtures)
        router = (experts.n_experts, shape.width)
        counts[router] = counts.get(router, 0) + mixtures
    return counts


def _measurements(trial: Trial, options: RunOptions) -> float:
    counts = count_parameters(trial.model)
    gradients, sizes = FLOAT_BYTES * counts.total, [0.0]
    if "sharpness" in options.measure:
        sizes.append(SHARPNESS_VECTORS * FLOAT_BYTES * counts.total + _twice_differentiable(trial, options))
    if "preconditioner" in options.measure:
        sizes.append(PRECONDITIONER_ARRAYS * FLOAT_BYTES * counts.matrices_total)
    return max(sizes) + (gradients if options.measure else 0)


def _twice_differentiable(trial: Trial, options: RunOptions) -> float:
    """The graph of a backward pass over the batch of the sharpness, in float32, with whole logits."""
    length, shape = trial.sequence_length, trial.model.shape
    tokens = max(SHARPNESS_TOKENS // length, 1) * length
    sizes = {
        "pass": _training(
            trial.model, MicroBatch(tokens, length, FLOAT_BYTES, device=options.device), True, False
        ).size,
        "weights": FLOAT_BYTES * shape.layers * shape.heads * tokens * length,
        "logits": FLOAT_BYTES * tokens * trial.model.vocabulary_size,
    }
    return sum(times * sizes[name] for name, times in SHARPNESS_GRAPH.items())
