"""The planted law of a simulation: pure functions of the section ``simulate`` and a trial; and its folder.

A RUNS_DIR holds simulated results or real ones. Nothing of the law depends on time, order or machine: every
draw is a hash of the simulation's seed and of what is drawn, so that a simulation that was stopped and goes
on is the one it would have been.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from scalevec.model.identity import digest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.files import AlreadyWrittenError, write_once
from scalevec.sweeps.expansion.trials import ENDLESS, CorpusFacts
from scalevec.sweeps.trainers.any_trial import AnyTrial, OwnTrial

if TYPE_CHECKING:  # pydantic is imported only where a sweep is read
    from scalevec.sweeps.sections.schema import Sweep
    from scalevec.sweeps.sections.simulate import RateBowl, Simulate

DEVICE = "simulated"
STEPS = 100
DECISIVE = (
    *("law", "arms", "seed_noise", "pair_noise", "stream_share", "block_noise", "block_share"),
    *("learning_rate", "seed"),
)
"""The parts of ``simulate`` that decide results."""
_STANDARD = NormalDist()
TEST_BLOCKS, BLOCK_TOKENS = 64, 6_250
"""Of a test split that does not exist."""
TEXT_SPREAD = 0.15
"""Nats by which blocks of text differ for every trial alike, as those of a real test split do."""
FOLDER = "simulated"
MARKER = "SIMULATED"
_CONTENT = b"Every result below this folder was simulated: nothing was trained.\n"
_DIGITS = 8
_BITS = 53


@dataclass(frozen=True)
class Truth:
    """What comes out of a trial: nats/token, None where it diverges."""

    loss: float | None
    diverged_at_step: int | None
    loss_blocks: list[float] | None = None
    """On each block of the test split, with ``loss`` as their mean."""

    @property
    def status(self) -> str:
        """As in result.json."""
        return "completed" if self.diverged_at_step is None else "diverged"


def nominal_corpus(sweep: "Sweep") -> CorpusFacts:
    """A corpus that does not exist; its fingerprint names what is planted.

    The fingerprint is a part of every trial's identity: a simulated trial is never a real one, nor one of
    another law.
    """
    planted = sweep.simulation()
    decisive = {name: planted[name] for name in DECISIVE} | {"nan": planted["faults"]["nan"]}
    fingerprint = digest({**decisive, "corpus": sweep.corpus.model_dump(mode="json")})
    return CorpusFacts(f"simulated-{fingerprint}", sweep.corpus.vocabulary, ENDLESS)


def uniform(*drawn: object) -> float:
    """A number in (0, 1) that depends on ``drawn`` alone."""
    text = "/".join(map(str, drawn)).encode()
    whole = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> (64 - _BITS)
    return (whole + 0.5) / (1 << _BITS)


def normal(*drawn: object) -> float:
    """A standard normal number that depends on ``drawn`` alone."""
    return _STANDARD.inv_cdf(uniform(*drawn))


def expected_loss(simulate: "Simulate", arm: str, n_params: float, n_tokens: float) -> float:
    """The law of ``arm`` at N and D, nats/token.

    With a gain g the arm has the law's loss at g times its compute 6ND, with D/N as it is: both N and D
    count sqrt(g) times, so that g is its compute multiplier everywhere.
    """
    planted = simulate.arms.get(arm)
    values = simulate.law.model_dump() | (planted.given() if planted is not None else {})
    root: float = math.sqrt(values.pop("gain", 1.0))
    of_size = values["A"] / (n_params * root) ** values["alpha"]
    of_data = values["B"] / (n_tokens * root) ** values["beta"]
    return float(values["E"] + of_size + of_data)


def rate_penalty(bowl: "RateBowl", n_params: float, rate: float) -> float | None:
    """Nats that a learning rate off its optimum costs; None where it is so high that training diverges."""
    if bowl.optimum is None:
        return 0.0
    factor = rate / (bowl.optimum * (n_params / bowl.at) ** bowl.exponent)
    return None if factor > bowl.diverges_above else float(bowl.curvature * math.log2(factor) ** 2)


def steps_of(trial: AnyTrial) -> int:
    """Optimizer steps of ``trial``; 100 where a foreign trainer does not say how many it takes."""
    return trial.steps or STEPS


def truth(simulate: "Simulate", arm: str, trial: AnyTrial, trial_id: str) -> Truth:
    """The loss of ``trial``: its law, its learning rate, the noise of stream and trial, the test split.

    What arms share follows from the stream and the budget, so that two rungs or settings are independent.
    """
    n_params, seed, rate = trial.n_params, simulate.seed, trial.learning_rate
    penalty = 0.0 if rate is None else rate_penalty(simulate.learning_rate, n_params, rate)
    if penalty is None or uniform(seed, "nan", trial_id) < simulate.faults.nan:
        return Truth(None, 1 + int(uniform(seed, "nan at", trial_id) * steps_of(trial)))
    shared = normal(seed, "shared", trial.stream, trial.tokens)
    of_arm = _with_share(
        simulate.stream_share, normal(seed, "stream", arm, trial.stream), normal(seed, "own", trial_id)
    )
    noise = simulate.seed_noise * shared + simulate.pair_noise * of_arm
    expected = expected_loss(simulate, arm, n_params, trial.tokens) + penalty + noise
    errors = _block_errors(simulate, arm, trial_id)
    blocks = [float(f"{expected + error:.{_DIGITS}g}") for error in errors]
    return Truth(math.fsum(blocks) / TEST_BLOCKS, None, blocks)


def _block_errors(simulate: "Simulate", arm: str, trial_id: str) -> list[float]:
    """What each block of the test split adds to the loss: the same for all, for the arm, for the trial."""
    texts, arms = (_block_draws(simulate.seed, kind) for kind in ("text", f"arm {arm}"))
    mean_text = math.fsum(texts) / TEST_BLOCKS  # no part of the law
    return [
        TEXT_SPREAD * (text - mean_text)
        + simulate.block_noise
        * _with_share(simulate.block_share, of_arm, normal(simulate.seed, "block", trial_id, block))
        for block, (text, of_arm) in enumerate(zip(texts, arms, strict=True))
    ]


@lru_cache
def _block_draws(seed: int, kind: str) -> list[float]:
    """What many trials have in common on each block."""
    return [normal(seed, "block", kind, block) for block in range(TEST_BLOCKS)]


def _with_share(share: float, common: float, rest: float) -> float:
    """A standard normal number of which ``share`` of the variance is ``common``."""
    return math.sqrt(share) * common + math.sqrt(1 - share) * rest


def result_fields(trial: AnyTrial, outcome: Truth, wall_s: float, micro_batch: int) -> dict[str, Any]:
    """result.json, as training would write it; the device says that nothing was trained."""
    steps = outcome.diverged_at_step or steps_of(trial)
    return {
        "status": outcome.status,
        "loss": outcome.loss,
        "loss_validation": outcome.loss,
        "loss_blocks": outcome.loss_blocks,
        "block_tokens": None if outcome.loss_blocks is None else [BLOCK_TOKENS] * TEST_BLOCKS,
        "diverged_at_step": outcome.diverged_at_step,
        "steps": steps,
        "n_tokens": trial.tokens,
        "epochs": trial.tokens / ENDLESS,
        "flops": 6 * trial.n_params * trial.tokens,
        "wall_s": wall_s,
        "tokens_per_s": steps * trial.tokens / steps_of(trial) / wall_s,
        **trial.size_columns(),
        **(_of_model(trial) if isinstance(trial, OwnTrial) else {}),
        "device": DEVICE,
        "micro_batch": micro_batch,
        "resumes": 0,
        "trunk_step": 0,
        "test_tokens": TEST_BLOCKS * BLOCK_TOKENS + 1,
        "validation_tokens": ENDLESS,
        "bytes_per_token": None,
    }


def _of_model(trial: OwnTrial) -> dict[str, Any]:
    """What is known of a trial of our own model beside its budget."""
    return {
        "loss_initial": math.log(trial.model.vocabulary_size),
        "flops_counted": trial.training_flops,
        "precision": trial.precision,
    }


def runs_dir_of(runs_dir: Path, *, simulated: bool) -> Path:
    """Where trials are kept, real and simulated ones apart; a folder of simulations stands for itself.

    Raises ``InvalidInputError`` for real ones where ``runs_dir`` holds simulations.
    """
    if simulated:
        return runs_dir if is_simulated(runs_dir) else runs_dir / FOLDER
    if is_simulated(runs_dir):
        raise InvalidInputError(
            f"{runs_dir} holds simulated results; trials are trained in a folder of their own"
        )
    return runs_dir


def is_simulated(runs_dir: Path) -> bool:
    """Whether ``runs_dir`` holds simulations."""
    return (runs_dir / MARKER).exists()


def hold_simulations(runs_dir: Path) -> None:
    """Mark ``runs_dir`` as one of simulations.

    Raises ``InvalidInputError`` where real trials are kept in it.
    """
    if is_simulated(runs_dir):
        return
    if (runs_dir / "trials").exists():
        raise InvalidInputError(
            f"{runs_dir} holds trials that were trained; a simulation needs a folder of its own"
        )
    runs_dir.mkdir(parents=True, exist_ok=True)
    try:
        write_once(runs_dir / MARKER, _CONTENT)
    except AlreadyWrittenError:  # by another simulation, just now
        return
