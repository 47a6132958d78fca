"""The section ``simulate``: what ``--executor simulate`` plants in place of training."""

from typing import Annotated

from pydantic import Field

from scalevec.sweeps.sections.entries import Given, Label, Number, Positive, Section, Seed

NotNegative = Annotated[Number, Field(ge=0)]
Probability = Annotated[Number, Field(ge=0, le=1)]


class PlantedLaw(Section):
    """``E + A/N^alpha + B/D^beta``, nats/token; defaults: Hoffmann et al. (2022), approach 3.

    N: matrix parameters without embeddings and scale vectors; D: trained tokens.
    """

    E: NotNegative = 1.69
    """Irreducible loss, nats/token."""
    A: NotNegative = 406.4
    """Coefficient of the term in N."""
    alpha: Positive = 0.34
    """Exponent of N."""
    B: NotNegative = 410.7
    """Coefficient of the term in D."""
    beta: Positive = 0.28
    """Exponent of D."""


class ArmLaw(Given):
    """How an arm differs from ``law``: a compute multiplier, and parameters of its own."""

    gain: Positive = 1.0
    """The law needs ``gain`` times the compute for the arm's loss, at every compute."""
    E: NotNegative | None = None
    """The arm's own irreducible loss."""
    A: NotNegative | None = None
    """The arm's own coefficient of the term in N."""
    alpha: Positive | None = None
    """The arm's own exponent of N."""
    B: NotNegative | None = None
    """The arm's own coefficient of the term in D."""
    beta: Positive | None = None
    """The arm's own exponent of D."""


class RateBowl(Section):
    """What a learning rate off its optimum costs: ``curvature`` nats for each squared factor of two."""

    optimum: Positive | None = None
    """The best rate at N = ``at``; without it the middle of the tuned grid, or every rate is as good."""
    at: Positive = 1e6
    """N at which ``optimum`` is the best rate."""
    exponent: Number = 0.0
    """Exponent of N in the best rate."""
    curvature: NotNegative = 0.03
    """Nats/token per squared factor of two off the best rate."""
    diverges_above: Annotated[Number, Field(gt=1)] = 8.0
    """Rates above this multiple of the best one diverge."""


class Faults(Section):
    """What may go wrong with a trial, with its probability."""

    nan: Probability = 0.0
    """The trial diverges."""


class Simulate(Section):
    """A planted law with noise, a learning-rate bowl and divergences; every field has a default."""

    law: PlantedLaw = PlantedLaw()
    """The planted law."""
    arms: dict[Label, ArmLaw] = Field(default_factory=dict)
    """Arms that differ from the law."""
    seed_noise: NotNegative = 0.005
    """Standard deviation, in nats, of what all arms share at one rung, budget and seed."""
    pair_noise: NotNegative = 0.002
    """Standard deviation, in nats, of the part that arms do not share."""
    stream_share: Probability = 0.3
    """Share of the variance of ``pair_noise`` that the trials of one arm and stream have in common."""
    block_noise: NotNegative = 0.01
    """Standard deviation, in nats, of what arms do not share on one of 64 blocks of the test split."""
    block_share: Probability = 0.15
    """Share of the variance of ``block_noise`` that all trials of an arm have in common."""
    learning_rate: RateBowl = RateBowl()
    """What a learning rate off its optimum costs."""
    faults: Faults = Faults()
    """The probability that a trial diverges."""
    seed: Seed = 0
    """Seed of the noise."""
