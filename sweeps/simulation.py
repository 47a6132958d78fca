"""The section ``simulate``: what ``--executor simulate`` plants in place of training, and which faults."""

from typing import Annotated

from pydantic import Field, model_validator

from sweeps.entries import Count, Given, Label, Number, Section, Seed, problem
from sweeps.errors import refused

Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Probability = Annotated[Number, Field(ge=0, le=1)]


class PlantedLaw(Section):
    """``E + A/N^alpha + B/D^beta``, nats a token; defaults: Hoffmann et al. (2022), approach 3.

    N: matrix parameters without embeddings and scale vectors; D: trained tokens.
    """

    E: NotNegative = 1.69
    A: NotNegative = 406.4
    alpha: Positive = 0.34
    B: NotNegative = 410.7
    beta: Positive = 0.28


class ArmLaw(Given):
    """How an arm differs from ``law``: a compute multiplier, and parameters of its own."""

    gain: Positive = 1.0
    """The law needs ``gain`` times the compute for the arm's loss, at every compute."""
    E: NotNegative | None = None
    A: NotNegative | None = None
    alpha: Positive | None = None
    B: NotNegative | None = None
    beta: Positive | None = None


class RateBowl(Section):
    """What a learning rate off its optimum costs: ``curvature`` nats for each squared factor of two."""

    optimum: Positive | None = None
    """The best rate at N = ``at``; without it the middle of the tuned grid, or every rate is as good."""
    at: Positive = 1e6
    exponent: Number = 0.0
    """Of N in the best rate."""
    curvature: NotNegative = 0.03
    diverges_above: Annotated[Number, Field(gt=1)] = 8.0
    """Rates above this multiple of the best one diverge."""


class Faults(Section):
    """The probability of each fault in one attempt, ``nan`` (a divergence) in one trial."""

    preempted: Probability = 0.0
    killed: Probability = 0.0
    error: Probability = 0.0
    nan: Probability = 0.0
    out_of_memory: Probability = 0.0
    node_failure: Probability = 0.0
    slow_node: Probability = 0.0

    @model_validator(mode="after")
    def _check_sum(self) -> "Faults":
        total = sum(self.model_dump().values())
        if total > 1 + 1e-9:
            raise problem(refused(round(total, 6), "probabilities that sum to at most 1"))
        return self


class Simulate(Section):
    """A planted law with noise, a learning-rate bowl and faults; every field has a default."""

    law: PlantedLaw = PlantedLaw()
    arms: dict[Label, ArmLaw] = Field(default_factory=dict)
    seed_noise: NotNegative = 0.005
    """Standard deviation, in nats, of what all arms share at one rung, budget and seed."""
    pair_noise: NotNegative = 0.002
    """Standard deviation, in nats, of each trial's own part."""
    learning_rate: RateBowl = RateBowl()
    faults: Faults = Faults()
    nodes: Count = 16
    bad_nodes: Annotated[int, Field(ge=0)] = 0
    """Nodes on which every attempt ends with a failure of the node."""
    slow_factor: Annotated[Number, Field(ge=1)] = 4.0
    """How many times longer an attempt takes on a slow node."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_nodes(self) -> "Simulate":
        if self.bad_nodes >= self.nodes:
            raise problem(refused(self.bad_nodes, f"fewer than all nodes, {self.nodes}"), "bad_nodes")
        return self
