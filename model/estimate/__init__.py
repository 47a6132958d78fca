"""The memory of a trial: what it holds throughout, and the most that any part of it needs beside that.

Measured on the real model with tensors that hold nothing (``dry_run``), once for all trials that are
alike, and kept in the user's cache folder. torch is loaded only where something is not kept there yet.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module

from scalevec.model.accounting import Passes, Sizes, count_parameters, measured, structure
from scalevec.model.config import RunOptions, ScheduleConfig, Trial
from scalevec.model.optimization import OptimizerConfig

FLOAT_BYTES = 4
"""Of a weight, a gradient and an entry of the optimizer's state."""
FRAMEWORK_BYTES = {"cpu": 3e8, "cuda": 1.2e9}
"""The framework's own share: of a process on the CPU the interpreter and torch's libraries, as seen; on a GPU
the context, the libraries' workspaces and what the allocator cannot use, a rough figure."""
SHARPNESS_TOKENS = 2048
"""Targets in the batch of a run's sharpness, or one sequence where that is longer."""
SHARPNESS_VECTORS = 32 + 4
"""Vectors of the parameters' size: the basis of up to 32 products, and those of one product."""
SHARPNESS_PASSES, SHARPNESS_WEIGHTS, SHARPNESS_LOGITS = 4.5, 7.0, 6.0
"""What its product with the Hessian keeps: so often what a training pass takes, the attention weights of all
pairs of tokens, and the logits; as seen, within a quarter."""
PRECONDITIONER_ARRAYS = 9
"""Of the matrices' size, kept over a step: values, gradient, predicted movement, decay; as seen."""

_dry_run = partial(import_module, "scalevec.model.estimate.dry_run")


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
    """The memory of ``trial`` as ``options`` run it, of each process its share."""
    counts, n = count_parameters(trial.model), options.processes
    holders = n if options.shard else 1
    entire = FLOAT_BYTES * counts.total
    parameters, passes = entire // holders, _passes(trial, options)
    # A block at a time is whole while it is passed, one more is on its way.
    block = FLOAT_BYTES * counts.matrices_total // trial.model.shape.layers
    whole = 2 * block + FLOAT_BYTES * counts.embedding if options.shard else 0
    # Of shards too gradients are whole where they add up: they are exchanged once per step.
    of_others = 0 if _holds_gradients(trial, options) else entire - parameters
    training = max(passes["head"], passes["last"], passes["first"] - of_others)
    state, working = _share_of_optimizer(trial, options)
    return Memory(
        parameters=parameters,
        optimizer=state,
        training=training + whole + (2 * block if options.shard else 0),
        step=parameters + working,
        evaluation=passes["evaluation"] + whole,
        measurements=round(_measurements(trial, options)),
        copy=entire + optimizer_bytes(trial) if options.device == "cpu" else 0,
        framework=round(FRAMEWORK_BYTES[_kind(options)]),
        start=entire + parameters if options.shard and options.device == "cpu" else 0,
    )


def optimizer_bytes(trial: Trial) -> int:
    """Bytes of the state of the trial's optimizer."""
    sizes = _optimizer(trial, "cuda")
    return sizes["matrices"] + sizes["others"]


def _kind(options: RunOptions) -> str:
    return options.device.partition(":")[0]


def _is_cut(trial: Trial, options: RunOptions) -> bool:
    return 0 < options.micro_batch < trial.batch_sequences // options.processes


def _holds_gradients(trial: Trial, options: RunOptions) -> bool:
    """Whether gradients are held between passes, or throughout, where processes sum them."""
    return _is_cut(trial, options) or (options.processes > 1 and not options.shard)


def _passes(trial: Trial, options: RunOptions) -> Sizes:
    # Of more processes than sequences a plan is refused later, with the rung that asks for them.
    part, length = max(trial.batch_sequences // options.processes, 1), trial.sequence_length
    evaluated = options.evaluated_at_once(trial)
    if trial.evaluation_tokens:
        evaluated = max(1, min(evaluated, trial.evaluation_tokens // length))
    of = Passes(
        model=structure(trial.model),
        sequences=min(options.micro_batch or part, part),
        length=length,
        evaluated=evaluated,
        precision=trial.precision,
        device=_kind(options),
        recomputes=options.recompute == "block",
        compiled=options.compiled,
        accumulates=_holds_gradients(trial, options),
        folds_once=options.compiled and _is_cut(trial, options) and not options.shard,
    )
    return measured("passes", of, lambda: _dry_run().passes(of))


def _optimizer(trial: Trial, device: str) -> Sizes:
    """Bytes of the state of ``matrices`` and ``others``, and the most of a ``step`` beside it."""
    registered = trial.optimizer.registered
    if registered.plugin is not None or not registered.factory:  # whose code a plan does not run
        counts = count_parameters(trial.model)
        each = {"matrices": counts.matrices_total, "others": counts.total - counts.matrices_total, "step": 0}
        return {name: round(FLOAT_BYTES * registered.state_per_parameter * n) for name, n in each.items()}
    if not registered.matrices_only:
        device = "cuda"  # Only matrices that are stepped together make a difference.
    model, config = structure(trial.model), _of_any_rate(trial.optimizer)
    return measured(
        "optimizer",
        (model, config, device),
        lambda: _dry_run().optimizer(replace(trial, model=model, optimizer=config), device),
    )


@lru_cache(maxsize=4096)
def _of_any_rate(optimizer: OptimizerConfig) -> OptimizerConfig:
    """An optimizer of the same sizes, of which the learning rate and the decay are no part."""
    return replace(optimizer, learning_rate=1e-3, weight_decay=0.1)


def _share_of_optimizer(trial: Trial, options: RunOptions) -> tuple[int, int]:
    """Bytes of the optimizer's state in a process, and those that a step takes for itself."""
    sizes, n = _optimizer(trial, _kind(options)), options.processes
    state, working = sizes["matrices"] + sizes["others"], sizes["step"]
    if not options.shard:
        return state, working
    if not trial.optimizer.registered.matrices_only:
        return state // n, working // n
    # They are shared out, but each is stepped whole.
    matrices = FLOAT_BYTES * count_parameters(trial.model).matrices_total
    return (state + matrices) // n, working + matrices // n


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
    batch = replace(
        trial, batch_tokens=tokens, tokens=tokens, precision="float32", schedule=ScheduleConfig("constant")
    )
    weights = FLOAT_BYTES * shape.layers * shape.heads * tokens * length
    logits = FLOAT_BYTES * tokens * trial.model.vocabulary_size
    passes = _passes(batch, RunOptions(device=options.device))["head"]
    return SHARPNESS_PASSES * passes + SHARPNESS_WEIGHTS * weights + SHARPNESS_LOGITS * logits
