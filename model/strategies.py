"""Scale-vector strategies as data: which vectors exist, where they act, how they are parameterized.

The fields are independent of each other, so that any point of the paper's ablation lattice
(arXiv 2605.26895) can be written down. The arithmetic that they stand for is in ``model.scale_vectors``.

Where the architecture itself normalizes what a map puts out (``OUTPUT_NORMS``; gemma), the fields mean this:

* The norm stays under every strategy. Its own vector is an output-norm vector; it is there unless
  ``branches`` is ``none``. Queries and keys have one entry for each channel of a head, shared by the heads.
* HG (``branches: heterogeneous``) splits vectors that several maps share; a norm behind one map is read by
  nobody else, so nothing changes there.
* DP puts the map's output vector between the map and the norm; the norm's own vector stays behind it.
* DNP finds its norm there already: none is added, and the map's output vector, with an entry for every
  output channel (``heads: own``), takes the place of the norm's own.
"""

from dataclasses import dataclass, replace
from typing import Any

from scalevec.model.fields import POSITIVE, PluginSource, added_field, require, require_choice, require_in

ATTENTION_INPUT_MAPS = ("query", "key", "value")
FEED_FORWARD_INPUT_MAPS = ("gate", "up")
FEED_FORWARD_MAPS = (*FEED_FORWARD_INPUT_MAPS, "down")
NORMED_MAPS = ATTENTION_INPUT_MAPS + FEED_FORWARD_INPUT_MAPS
"""The linear maps of a block that read a normalized input."""
ALL_MAPS = ("query", "key", "value", "output", "gate", "up", "down", "head")
BRANCHES = (*NORMED_MAPS, "head")
"""The maps behind a norm: in the paper {Q, K, V}, {gate, up} and the final output projection (3.2)."""

OUTPUT_NORMS: dict[str, tuple[str, ...]] = {"llama": (), "gemma": ("query", "key", "output", "down")}
"""Architecture -> the maps whose outputs it normalizes itself: queries and keys head by head, the two maps
that end a sublayer over the width."""


@dataclass(frozen=True)
class Reparameterization:
    """How a vector follows from a magnitude beta and a direction alpha.

    factory: ``module:name`` of a function (beta [1], alpha [width]) -> the vector in effect [width].
    beta, alpha: the values that they start from, where the vector is one.
    plugin: The plugin that has the function; None for one of ours.
    """

    factory: str
    beta: float
    alpha: float
    plugin: PluginSource | None = None


_CODE = "scalevec.model.scale_vectors"
REPARAMETERIZATIONS: dict[str, Reparameterization] = {
    "or": Reparameterization(f"{_CODE}:scaled_direction", 1.0, 1.0),
    "er": Reparameterization(f"{_CODE}:centred_exponential", 0.0, 0.0),
    "product": Reparameterization(f"{_CODE}:product", 1.0, 1.0),
    "exponential-sum": Reparameterization(f"{_CODE}:exponential_sum", 0.0, 0.0),
}
"""By name; ``none`` is the vector itself. Plugins add theirs (``sweeps.plugins``)."""

CHOICES = {
    "branches": ("none", "shared", "heterogeneous"),
    "placement": ("input", "dual", "dual-normalized", "normalized"),
    "reparameterization": ("none", *REPARAMETERIZATIONS),
    "magnitudes": ("map", "head"),
    "weight_decay": ("all", "none", "input", "output"),
    "heads": ("own", "shared"),
    "experts": ("shared", "own", "none"),
    "router": ("branch", "none"),
}
"""Fields of :class:`ScaleVectorStrategy` that are names, and what they may be."""
MAP_CHOICES = {"heterogeneous_maps": NORMED_MAPS, "dual_maps": ALL_MAPS, "input_role_maps": ALL_MAPS}
"""Its fields that are sets of maps, and of which maps."""


@dataclass(frozen=True)
class ScaleVectorStrategy:
    """One way to place and to parameterize scale vectors.

    branches: how the maps that read one normalized input share its vector: ``none`` (no vector), ``shared``
        (one for all, the usual RMSNorm gain) or ``heterogeneous`` (HG, equation 4 of the paper: one for each
        of ``heterogeneous_maps``).
    heterogeneous_maps: the maps behind a norm that HG gives a vector of their own, in the paper all five;
        those of a sublayer that are left out share one. Where all maps of a sublayer but one have their own,
        the last has too: it has nobody to share with.
    placement: ``input`` (between norm and map only), ``dual`` (DP, equation 6: ``y = u * (W (v * x))``),
        ``dual-normalized`` (DNP, equation 7: ``y = u * Norm(W (v * x))``) or ``normalized`` (DNP's norms
        without its vectors: ``y = Norm(W (v * x))``). AP, equation 5, is ``dual`` without ``branches``.
    dual_maps: the maps that the placement speaks of, by default the paper's branches. ``output`` and ``down``
        do not follow a norm: naming them gives them both vectors (only the output vector where ``branches``
        is ``none``). The head's output vector has an entry for each token of the vocabulary.
    normalize_per_head: whether DNP normalizes queries, keys and values head by head, as in the paper, or over
        their whole width. Gate and up are always normalized over their width; a norm that the architecture
        brings is its own, whatever stands here.
    normalize_head: whether DNP normalizes the logits over the vocabulary too. The paper does not say. By
        default they are only scaled: a norm cannot be folded into the head, so it rules out export as a plain
        Llama, and the logits of a micro-batch are then held whole.
    reparameterization: of a vector g of d entries by a scalar beta and a vector alpha: ``none``; ``or`` (OR,
        equation 8): g = beta Norm(alpha), Norm(alpha) = sqrt(d) alpha / |alpha|; ``er`` (ER, equation 9): g =
        exp(beta) exp(alpha - mean(alpha)); for ablations ``product``, g = beta alpha, and
        ``exponential-sum``, g = exp(beta + alpha).
    magnitudes: whether an output vector of queries, keys or values has one beta for the ``map`` or one, and a
        direction, for each ``head``. The paper does not say.
    weight_decay: which vectors decay like the matrices: ``all``, ``none``, only ``input``-norm vectors (IWD)
        or only ``output``-norm vectors. Decay acts on the parameters as stored; see ``docs/models.md``. Where
        a model stores gains as 1 + w, all decay towards 1.
    vector_weight_decay: the decay of the vectors that decay; None takes the optimizer's.
    decay_direction: whether alpha decays where the vector does, or beta alone. The paper does not say. OR's g
        does not feel it at once, but a shrinking alpha turns faster.
    learning_rate_factor: learning rate of the vectors over that of the matrices.
    heads: where queries, keys or values have output vectors, whether each head has entries of its ``own``
        (one for each output channel) or they are ``shared`` by the heads (one for each channel of a head).
    input_role_maps: the maps whose output vectors count as input-norm vectors for ``weight_decay``; by
        default none. By the paper's criterion, that a linear map follows, ``value`` and ``up`` might: their
        output vectors commute into the maps ``output`` and ``down``.
    experts: in a mixture, what the routed experts have of all this: ``shared`` (a vector belongs to a map of
        the layer, and all its experts share it), ``own`` (each expert has its own, as if it were a sublayer
        behind a norm of its own) or ``none`` (they are as under the strategy ``none``: they read the
        normalized input as it is). A shared expert is a dense unit and has its own vectors throughout.
    router: ``branch`` (the router is one more reader of the normalized input: it shares the vector of the
        readers, and has its own where gate and up have theirs) or ``none`` (it reads the normalized input as
        it is). The paper says nothing of either; without a mixture neither means anything.
    """

    branches: str = "shared"
    placement: str = "input"
    dual_maps: tuple[str, ...] = BRANCHES
    normalize_per_head: bool = True
    normalize_head: bool = False
    reparameterization: str = "none"
    magnitudes: str = "map"
    weight_decay: str = "all"
    vector_weight_decay: float | None = None
    decay_direction: bool = True
    learning_rate_factor: float = 1.0
    experts: str = "shared"
    router: str = "branch"
    heterogeneous_maps: tuple[str, ...] = NORMED_MAPS
    heads: str = "own"
    input_role_maps: tuple[str, ...] = ()
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    """The plugin that has the reparameterization."""

    def __post_init__(self) -> None:
        if self.plugin is None and self.reparameterization in REPARAMETERIZATIONS:
            object.__setattr__(self, "plugin", REPARAMETERIZATIONS[self.reparameterization].plugin)
        for name, allowed in CHOICES.items():
            if name != "reparameterization" or self.plugin is None:
                require_choice(f"scale_vectors.{name}", getattr(self, name), allowed)
        factor, decay = self.learning_rate_factor, self.vector_weight_decay
        require_in(POSITIVE, "scale_vectors.learning_rate_factor", factor)
        is_decay = decay is None or 0 <= decay < float("inf")
        require(is_decay, "scale_vectors.vector_weight_decay", decay, "zero or more, or none")
        for field, allowed in MAP_CHOICES.items():
            object.__setattr__(self, field, self._named_maps(field, allowed))
        object.__setattr__(self, "heterogeneous_maps", _with_those_left_alone(self.heterogeneous_maps))

    def _named_maps(self, field: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """The maps of a field in one order, so that two ways of writing the same set are one strategy."""
        named: tuple[str, ...] = getattr(self, field)
        for name in named:
            require_choice(f"scale_vectors.{field}", name, allowed)
        require(len(set(named)) == len(named), f"scale_vectors.{field}", named, "each map once")
        return tuple(name for name in allowed if name in named)

    @property
    def is_dual(self) -> bool:
        """Whether any map has an output vector."""
        return self.placement in ("dual", "dual-normalized") and bool(self.dual_maps)

    @property
    def has_vectors(self) -> bool:
        """Whether the model has any scale vector at all."""
        return self.branches != "none" or self.is_dual

    def has_own_input_vector(self, name: str) -> bool:
        """Whether the map ``name`` has an input vector that no other map shares; the head's is its norm's."""
        if name in NORMED_MAPS:
            return self.branches == "heterogeneous" and name in self.heterogeneous_maps
        return name != "head" and self.branches != "none" and self.has_output_vector(name)

    def has_shared_vector(self, readers: tuple[str, ...]) -> bool:
        """Whether some of ``readers``, the maps that read one normalized input, share a vector."""
        return self.branches != "none" and not all(map(self.has_own_input_vector, readers))

    def has_output_vector(self, name: str) -> bool:
        """Whether the map ``name`` has an output vector."""
        return self.is_dual and name in self.dual_maps

    def shares_heads(self, name: str) -> bool:
        """Whether the output vector of the map ``name`` has an entry for each channel of a head only."""
        return self.heads == "shared" and name in ATTENTION_INPUT_MAPS

    def splits_heads(self, name: str) -> bool:
        """Whether the output vector of the map ``name`` has a magnitude and a direction for each head."""
        by_head = self.magnitudes == "head" and self.heads == "own" and name in ATTENTION_INPUT_MAPS
        return self.reparameterization != "none" and by_head

    def output_role(self, name: str) -> str:
        """The role of the output vector of the map ``name``: ``input`` or ``output``."""
        return "input" if name in self.input_role_maps else "output"

    def normalizes_output(self, name: str) -> bool:
        """Whether the placement puts a norm behind the map ``name``."""
        if name == "head" and not self.normalize_head:
            return False
        return self.placement in ("dual-normalized", "normalized") and name in self.dual_maps

    def has_norm_vector(self, name: str, architecture: str) -> bool:
        """Whether the norm that ``architecture`` has behind the map ``name`` has a vector of its own."""
        replaced = self.normalizes_output(name) and self.has_output_vector(name)
        return name in OUTPUT_NORMS[architecture] and self.branches != "none" and not replaced

    def decay_of(self, role: str, parameter: str, of_matrices: float) -> float:
        """The weight decay of a vector's ``parameter`` (``gain``, ``beta`` or ``alpha``).

        ``role`` is the vector's, ``input`` or ``output``; ``of_matrices`` the optimizer's weight decay.
        """
        if self.weight_decay not in ("all", role) or (parameter == "alpha" and not self.decay_direction):
            return 0.0
        return of_matrices if self.vector_weight_decay is None else self.vector_weight_decay


def _with_those_left_alone(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the maps behind norms, ``names`` and those that would share a vector with nobody."""
    alone = set(names)
    for readers in (ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS):
        left = set(readers) - alone
        alone |= left if len(left) == 1 else set()
    return tuple(name for name in NORMED_MAPS if name in alone)


_UNIFIED = ScaleVectorStrategy(
    branches="heterogeneous", placement="dual-normalized", reparameterization="or", weight_decay="input"
)
PRESETS: dict[str, ScaleVectorStrategy] = {
    "none": ScaleVectorStrategy(branches="none"),
    "baseline": ScaleVectorStrategy(),
    "baseline-no-decay": ScaleVectorStrategy(weight_decay="none"),
    "hg": ScaleVectorStrategy(branches="heterogeneous"),
    "ap": ScaleVectorStrategy(branches="none", placement="dual"),
    "dp": ScaleVectorStrategy(placement="dual"),
    "dnp": ScaleVectorStrategy(placement="dual-normalized"),
    "or": ScaleVectorStrategy(reparameterization="or"),
    "er": ScaleVectorStrategy(reparameterization="er"),
    "iwd": ScaleVectorStrategy(weight_decay="input"),
    # HG + DNP + OR + IWD, section 4.2 of the paper. The head has an output vector by one count of the paper
    # alone (0.11985B parameters at 0.12B), so that the other reading stands beside it.
    "unified": _UNIFIED,
    "unified-no-head": replace(_UNIFIED, dual_maps=NORMED_MAPS),
    "unified-dp": replace(_UNIFIED, placement="dual"),
    # Arms of ours, not the paper's: less of unified, at a lower cost in parameters and time.
    "unified-light": replace(_UNIFIED, branches="shared", dual_maps=("query", "key")),
    "unified-attention": replace(
        _UNIFIED,
        heterogeneous_maps=ATTENTION_INPUT_MAPS,
        dual_maps=ATTENTION_INPUT_MAPS,
        heads="shared",
        input_role_maps=("value",),
    ),
    # Controls: is it the norms, the norms of queries and keys alone, or how fast the vectors learn?
    "norms-only": ScaleVectorStrategy(branches="none", placement="normalized"),
    "qk-norm": ScaleVectorStrategy(placement="dual-normalized", dual_maps=("query", "key"), heads="shared"),
    "vectors-x2": ScaleVectorStrategy(learning_rate_factor=2.0),
    "vectors-x4": ScaleVectorStrategy(learning_rate_factor=4.0),
}


def canonical(
    strategy: ScaleVectorStrategy,
    *,
    weight_decay: float = 0.1,
    architecture: str = "llama",
    is_mixture: bool = False,
) -> ScaleVectorStrategy:
    """The simplest strategy that trains the same bits: fields that cannot matter are set to their default.

    On a Llama without dual placement every vector is an input-norm vector, for instance, so that decay
    on input-norm vectors *is* decay on all. ``weight_decay`` is the optimizer's. Where more than the strategy
    decides, some that train the same bits stay apart (on mixtures, experts without vectors, say, under a
    policy for vectors that only experts would have; ``heads`` where there is one head): then a trial is
    run twice, never one for another.
    """
    default = ScaleVectorStrategy()
    strategy = _canonical_placement(strategy, architecture, is_mixture)
    if strategy.branches == "heterogeneous" and not strategy.heterogeneous_maps:
        strategy = _with(strategy, branches="shared")
    if strategy.branches != "heterogeneous":
        strategy = _with(strategy, heterogeneous_maps=default.heterogeneous_maps)
    if not is_mixture:
        strategy = _with(strategy, experts=default.experts, router=default.router)
    if not any(map(strategy.has_output_vector, ATTENTION_INPUT_MAPS)):
        strategy = _with(strategy, heads=default.heads)
    if not any(strategy.splits_heads(name) for name in strategy.dual_maps if strategy.is_dual):
        strategy = _with(strategy, magnitudes=default.magnitudes)
    if not strategy.has_vectors:
        return replace(
            default,
            branches="none",
            placement=strategy.placement,
            dual_maps=strategy.dual_maps,
            normalize_per_head=strategy.normalize_per_head,
            normalize_head=strategy.normalize_head,
            # Experts without vectors of any kind are without the placement's norms too.
            experts=strategy.experts if strategy.placement == "normalized" else default.experts,
        )
    return _canonical_decay(strategy, weight_decay, architecture, is_mixture)


def _with(strategy: ScaleVectorStrategy, **fields: Any) -> ScaleVectorStrategy:
    """``strategy`` with these ``fields``: itself where it has them, as a new one is checked whole."""
    # By type too: 1 and 1.0 are equal, and not the same text of an identity.
    is_new = any(repr(getattr(strategy, name)) != repr(value) for name, value in fields.items())
    return replace(strategy, **fields) if is_new else strategy


def _canonical_placement(
    strategy: ScaleVectorStrategy, architecture: str, is_mixture: bool
) -> ScaleVectorStrategy:
    """With the placement in the fewest words."""
    default = ScaleVectorStrategy()
    if strategy.placement == "normalized":
        normalized = filter(strategy.normalizes_output, strategy.dual_maps)
        # No norm of the architecture's is inside an expert.
        there = () if is_mixture else OUTPUT_NORMS[architecture]
        added = tuple(name for name in normalized if name not in there)
        strategy = _with(strategy, dual_maps=added)
    elif not any(map(strategy.normalizes_output, strategy.dual_maps)) and strategy.is_dual:
        strategy = _with(strategy, placement="dual")
    if strategy.placement == "input" or not strategy.dual_maps:
        strategy = _with(strategy, placement=default.placement, dual_maps=default.dual_maps)
    if not strategy.normalizes_output("head"):
        strategy = _with(strategy, normalize_head=default.normalize_head)
    # A norm of the architecture's is by head whatever the strategy says.
    may_be_by_head = set(ATTENTION_INPUT_MAPS) - set(OUTPUT_NORMS[architecture])
    if not any(map(strategy.normalizes_output, may_be_by_head)):
        strategy = _with(strategy, normalize_per_head=default.normalize_per_head)
    return strategy


def _canonical_decay(
    strategy: ScaleVectorStrategy, weight_decay: float, architecture: str, is_mixture: bool
) -> ScaleVectorStrategy:
    """With the decay of vectors in the fewest words, ``weight_decay`` being that of the matrices."""
    default = ScaleVectorStrategy()
    of_vectors = strategy.vector_weight_decay
    policy = _canonical_policy(strategy, architecture, is_mixture)
    if of_vectors == 0.0 or (of_vectors is None and weight_decay == 0.0):
        policy = "none"
    if policy == "none":
        of_vectors = None
        # Where nothing decays at all, the policy says nothing.
        policy = "none" if weight_decay else default.weight_decay
    of_vectors = None if of_vectors == weight_decay else of_vectors
    decays = policy != "none" and (of_vectors is not None or weight_decay > 0)
    is_parted = strategy.reparameterization != "none"
    direction = strategy.decay_direction if decays and is_parted else True
    told_apart = strategy.is_dual and decays and policy != "all"
    roles = tuple(filter(strategy.has_output_vector, strategy.input_role_maps)) if told_apart else ()
    return _with(
        strategy,
        weight_decay=policy,
        vector_weight_decay=of_vectors,
        decay_direction=direction,
        input_role_maps=roles,
    )


def _canonical_policy(strategy: ScaleVectorStrategy, architecture: str, is_mixture: bool) -> str:
    """The decay policy in words of all/none where only vectors of one role exist."""
    norms = OUTPUT_NORMS[architecture]
    roles = {"input"} if strategy.branches != "none" else set()
    if any(strategy.has_norm_vector(name, architecture) for name in norms):
        roles.add("output")
    if is_mixture and norms and strategy.branches != "none":  # behind the sum over experts
        roles.add("output")
    if strategy.is_dual:
        roles |= set(map(strategy.output_role, strategy.dual_maps))
    decayed = {role for role in roles if strategy.weight_decay in ("all", role)}
    if decayed == roles:
        return "all"
    return strategy.weight_decay if decayed else "none"
