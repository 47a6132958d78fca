"""The section ``simulate``: what ``--executor simulate`` plants in place of training, and which faults."""

from typing import Annotated

from pydantic import Field, model_validator

from scalevec.sweeps.errors import refused
from scalevec.sweeps.sections.entries import Count, Given, Label, Number, Section, Seed, problem

Positive = Annotated[Number, Field(gt=0)]
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
    """The probability of each fault in one attempt, ``nan`` (a divergence) in one trial."""

    preempted: Probability = 0.0
    """The attempt is preempted."""
    killed: Probability = 0.0
    """The worker is killed without a word."""
    error: Probability = 0.0
    """The worker raises an error."""
    nan: Probability = 0.0
    """The trial diverges."""
    out_of_memory: Probability = 0.0
    """The attempt runs out of memory."""
    node_failure: Probability = 0.0
    """The node fails."""
    slow_node: Probability = 0.0
    """The node is slow."""

    @model_validator(mode="after")
    def _check_sum(self) -> "Faults":
        total = sum(self.model_dump().values())
        if total > 1 + 1e-9:
            raise problem(refused(round(total, 6), "probabilities that sum to at most 1"))
        return self


class Simulate(Section):
    """A planted law with noise, a learning-rate bowl and faults; every field has a default."""

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
    """Probabilities of the planted faults."""
    nodes: Count = 16
    """Nodes of the simulated cluster."""
    bad_nodes: Annotated[int, Field(ge=0)] = 0
    """Nodes on which every attempt ends with a failure of the node."""
    slow_factor: Annotated[Number, Field(ge=1)] = 4.0
    """How many times longer an attempt takes on a slow node."""
    seed: Seed = 0
    """Seed of noise and faults."""

    @model_validator(mode="after")
    def _check_nodes(self) -> "Simulate":
        if self.bad_nodes >= self.nodes:
            raise problem(refused(self.bad_nodes, f"fewer than all nodes, {self.nodes}"), "bad_nodes")
        return self
