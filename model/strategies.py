"""Scale-vector strategies as data: which vectors exist, where they act, how they are parameterized.

The fields are independent of each other, so that any point of the paper's ablation lattice
(arXiv 2605.26895) can be written down. The arithmetic that they stand for is in ``model.scale_vectors``.

Where the architecture itself normalizes what a map puts out (``OUTPUT_NORMS``; gemma), the fields mean this:

* The norm stays under every strategy. Its own vector is an output-norm vector, whatever
  ``dual_output_role`` says; it is there unless ``branches`` is ``none``. Queries and keys have one entry for
  each channel of a head, shared by the heads.
* HG (``branches: heterogeneous``) splits vectors that several maps share; a norm behind one map is read by
  nobody else, so nothing changes there.
* DP puts the map's output vector between the map and the norm; the norm's own vector stays behind it.
* DNP finds its norm there already: none is added, and the map's output vector, with an entry for every
  output channel (``heads: own``), takes the place of the norm's own.
"""

from dataclasses import dataclass, replace

from scalevec.model.fields import PluginSource, added_field, require, require_choice

ATTENTION_INPUT_MAPS = ("query", "key", "value")
FEED_FORWARD_INPUT_MAPS = ("gate", "up")
NORMED_MAPS = ATTENTION_INPUT_MAPS + FEED_FORWARD_INPUT_MAPS
"""The linear maps that read a normalized input."""
ALL_MAPS = ("query", "key", "value", "output", "gate", "up", "down")

OUTPUT_NORMS: dict[str, tuple[str, ...]] = {"llama": (), "gemma": ("query", "key", "output", "down")}
"""Architecture -> the maps whose outputs it normalizes itself: queries and keys head by head, the two maps
that end a sublayer over the width."""

CHOICES = {
    "branches": ("none", "shared", "heterogeneous"),
    "placement": ("input", "dual", "dual-normalized"),
    "reparameterization": ("none", "or", "er", "or-normalized", "or-exponential"),
    "weight_decay": ("all", "none", "input", "output"),
    "dual_output_role": ("input", "output"),
    "heads": ("own", "shared"),
    "experts": ("shared", "own", "none"),
    "router": ("branch", "none"),
}
"""Fields of :class:`ScaleVectorStrategy` that are names, and what they may be."""
MAP_CHOICES = {"heterogeneous_maps": NORMED_MAPS, "dual_maps": ALL_MAPS, "input_role_maps": ALL_MAPS}
"""Its fields that are sets of maps, and of which maps."""


@dataclass(frozen=True)
class PluginArithmetic:
    """A reparameterization of a plugin.

    factory: ``module:name`` of a function (beta [1], alpha [width]) -> the vector in effect [width].
    beta, alpha: the values that they start from, where the vector is one.
    """

    factory: str
    beta: float
    alpha: float
    plugin: PluginSource


ARITHMETIC: dict[str, PluginArithmetic] = {}
"""The reparameterizations that plugins have brought (``sweeps.plugins``)."""


@dataclass(frozen=True)
class ScaleVectorStrategy:
    """One way to place and to parameterize scale vectors.

    branches: how the maps that read one normalized input share its vector: ``none`` (no vector),
        ``shared`` (one for all, the usual RMSNorm gain) or ``heterogeneous`` (HG: one for each of
        ``heterogeneous_maps``).
    heterogeneous_maps: the maps behind a norm that HG gives a vector of their own; those of a sublayer that
        are left out share one. Public notes on the paper name queries, keys and values; all five is our
        reading. Where all maps of a sublayer but one have their own, the last has too: it has nobody to
        share with.
    placement: ``input`` (between norm and map only), ``dual`` (DP: ``y = u * (W (v * x))``) or
        ``dual-normalized`` (DNP: ``y = u * Norm(W (v * x))``).
    dual_maps: the maps that dual placement adds an output vector to. Which ones the paper uses is our
        reading. ``output`` and ``down`` do not follow a norm: naming them gives them both vectors (only
        the output vector where ``branches`` is ``none``).
    normalize_per_head: whether DNP normalizes queries, keys and values head by head (our reading) or
        over their whole width. Gate and up are always normalized over their width; a norm that the
        architecture brings is its own, whatever stands here.
    reparameterization: ``none``; ``or``: g = beta * alpha; ``er``: g = exp(beta + alpha);
        ``or-normalized``: g = beta * sqrt(d) * alpha / |alpha|; ``or-exponential``: g = exp(beta) * alpha.
        The split into a scalar beta and a vector alpha is our reading of the paper's OR and ER.
    weight_decay: which vectors decay like the matrices: ``all``, ``none``, only ``input``-norm vectors
        (IWD) or only ``output``-norm vectors. Decay acts on the parameters as stored: with ``or`` both
        factors decay, so the product decays twice as fast; ``er`` decays towards 1; a normalized
        direction does not feel decay. Where a model stores gains as 1 + w, all decay towards 1.
    heads: where queries, keys or values have output vectors, whether each head has entries of its ``own``
        (one for each output channel) or they are ``shared`` by the heads (one for each channel of a head).
    dual_output_role: whether the output vectors of dual placement count as output-norm vectors (our
        reading: no linear map follows them directly) or as input-norm vectors when decay is chosen.
    input_role_maps: the maps whose output vectors count as input-norm vectors whatever
        ``dual_output_role`` says of the others. By the paper's criterion, that a linear map follows, these
        are ``value`` and ``up``: their output vectors commute into the maps ``output`` and ``down``.
    learning_rate_factor: learning rate of the vectors over that of the matrices.
    experts: in a mixture, what the routed experts have of all this: ``shared`` (a vector belongs to a map
        of the layer, and all its experts share it), ``own`` (each expert has its own, as if it were a
        sublayer behind a norm of its own) or ``none`` (they are as under the strategy ``none``: they read
        the normalized input as it is). A shared expert is a dense unit and has its own vectors throughout.
    router: ``branch`` (the router is one more reader of the normalized input: it shares the vector of the
        readers, and has its own where gate and up have theirs) or ``none`` (it reads the normalized
        input as it is). Both are our reading; without a mixture neither means anything.
    """

    branches: str = "shared"
    placement: str = "input"
    dual_maps: tuple[str, ...] = NORMED_MAPS
    normalize_per_head: bool = True
    reparameterization: str = "none"
    weight_decay: str = "all"
    dual_output_role: str = "output"
    learning_rate_factor: float = 1.0
    experts: str = added_field("shared")
    router: str = added_field("branch")
    heterogeneous_maps: tuple[str, ...] = added_field(NORMED_MAPS)
    heads: str = added_field("own")
    input_role_maps: tuple[str, ...] = added_field(())
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    """The plugin that has the reparameterization."""

    def __post_init__(self) -> None:
        if self.plugin is None and self.reparameterization in ARITHMETIC:
            object.__setattr__(self, "plugin", ARITHMETIC[self.reparameterization].plugin)
        for name, allowed in CHOICES.items():
            if name != "reparameterization" or self.plugin is None:
                require_choice(f"scale_vectors.{name}", getattr(self, name), allowed)
        factor = self.learning_rate_factor
        require(0 < factor < float("inf"), "scale_vectors.learning_rate_factor", factor, "a positive number")
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
        return self.placement != "input" and bool(self.dual_maps)

    @property
    def has_vectors(self) -> bool:
        """Whether the model has any scale vector at all."""
        return self.branches != "none" or self.is_dual

    def has_own_input_vector(self, name: str) -> bool:
        """Whether the map ``name`` has an input vector that no other map shares."""
        if name in NORMED_MAPS:
            return self.branches == "heterogeneous" and name in self.heterogeneous_maps
        return self.branches != "none" and self.has_output_vector(name)

    def has_shared_vector(self, readers: tuple[str, ...]) -> bool:
        """Whether some of ``readers``, the maps that read one normalized input, share a vector."""
        return self.branches != "none" and not all(map(self.has_own_input_vector, readers))

    def has_output_vector(self, name: str) -> bool:
        """Whether the map ``name`` has an output vector."""
        return self.placement != "input" and name in self.dual_maps

    def shares_heads(self, name: str) -> bool:
        """Whether the output vector of the map ``name`` has an entry for each channel of a head only."""
        return self.heads == "shared" and name in ATTENTION_INPUT_MAPS

    def output_role(self, name: str) -> str:
        """The role of the output vector of the map ``name``: ``input`` or ``output``."""
        return "input" if name in self.input_role_maps else self.dual_output_role

    def normalizes_output(self, name: str) -> bool:
        """Whether a norm stands between the map ``name`` and its output vector."""
        return self.placement == "dual-normalized" and name in self.dual_maps

    def has_norm_vector(self, name: str, architecture: str) -> bool:
        """Whether the norm that ``architecture`` has behind the map ``name`` has a vector of its own."""
        normalized = name in OUTPUT_NORMS[architecture]
        return normalized and self.branches != "none" and not self.normalizes_output(name)

    def decays(self, role: str) -> bool:
        """Whether vectors of ``role`` (``input`` or ``output``) decay."""
        return self.weight_decay in ("all", role)


def _with_those_left_alone(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the maps behind norms, ``names`` and those that would share a vector with nobody."""
    alone = set(names)
    for readers in (ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS):
        left = set(readers) - alone
        alone |= left if len(left) == 1 else set()
    return tuple(name for name in NORMED_MAPS if name in alone)


PRESETS: dict[str, ScaleVectorStrategy] = {
    "none": ScaleVectorStrategy(branches="none"),
    "baseline": ScaleVectorStrategy(),
    "baseline-no-decay": ScaleVectorStrategy(weight_decay="none"),
    "hg": ScaleVectorStrategy(branches="heterogeneous"),
    "dp": ScaleVectorStrategy(placement="dual"),
    "dnp": ScaleVectorStrategy(placement="dual-normalized"),
    "or": ScaleVectorStrategy(reparameterization="or"),
    "er": ScaleVectorStrategy(reparameterization="er"),
    "iwd": ScaleVectorStrategy(weight_decay="input"),
    "unified": ScaleVectorStrategy(
        branches="heterogeneous", placement="dual-normalized", reparameterization="or", weight_decay="input"
    ),
    "unified-dp": ScaleVectorStrategy(
        branches="heterogeneous", placement="dual", reparameterization="or", weight_decay="input"
    ),
    "unified-light": ScaleVectorStrategy(
        placement="dual-normalized",
        dual_maps=("query", "key"),
        reparameterization="or",
        weight_decay="input",
    ),
    "unified-attention": ScaleVectorStrategy(
        branches="heterogeneous",
        heterogeneous_maps=ATTENTION_INPUT_MAPS,
        placement="dual-normalized",
        dual_maps=ATTENTION_INPUT_MAPS,
        heads="shared",
        reparameterization="or",
        weight_decay="input",
        input_role_maps=("value",),
    ),
}
"""The last two are readings of the paper's unified design by the count that it gives: at most 7.85e-5 more
parameters than the baseline at the 1B shape.

``unified-attention`` has all four parts where public notes on the paper place them: queries, keys and values
have input vectors of their own (7.67e-5, which leaves room for hardly more) and a normalized output vector
that the heads share, 8.1e-5 in all. The values' output vector commutes into the next linear map, so IWD
decays it.

``unified-light`` keeps within the count. Vectors of their own for the five maps behind norms (HG) are 1.15e-4
alone, output vectors of gate and up 2.04e-4: so branches stay shared, and of the maps only queries and keys
have a norm and an output vector, 7.68e-5 with the magnitudes of OR."""


def canonical(
    strategy: ScaleVectorStrategy,
    *,
    decays_anything: bool = True,
    architecture: str = "llama",
    is_mixture: bool = False,
) -> ScaleVectorStrategy:
    """The simplest strategy that trains the same bits: fields that cannot matter are set to their default.

    On a Llama without dual placement every vector is an input-norm vector, for instance, so that decay
    on input-norm vectors *is* decay on all. ``decays_anything`` is False where the weight decay is zero.
    Where more than the strategy decides, some that train the same bits stay apart (on mixtures, experts
    without vectors, say, under a policy for vectors that only experts would have; ``heads`` where there is
    one head): then a trial is run twice, never one for another.
    """
    default = ScaleVectorStrategy()
    if strategy.branches == "heterogeneous" and not strategy.heterogeneous_maps:
        strategy = replace(strategy, branches="shared")
    if strategy.branches != "heterogeneous":
        strategy = replace(strategy, heterogeneous_maps=default.heterogeneous_maps)
    if not is_mixture:
        strategy = replace(strategy, experts=default.experts, router=default.router)
    if not any(_may_normalize_per_head(strategy, name, architecture) for name in ATTENTION_INPUT_MAPS):
        strategy = replace(strategy, normalize_per_head=default.normalize_per_head)
    if not any(map(strategy.has_output_vector, ATTENTION_INPUT_MAPS)):
        strategy = replace(strategy, heads=default.heads)
    if not strategy.is_dual:
        strategy = replace(strategy, placement=default.placement, dual_maps=default.dual_maps)
    if not strategy.has_vectors:
        return ScaleVectorStrategy(branches="none")
    decay = _canonical_decay(strategy, architecture, is_mixture) if decays_anything else default.weight_decay
    role, maps = _canonical_roles(strategy, separated=decay not in ("all", "none"))
    return replace(strategy, weight_decay=decay, dual_output_role=role, input_role_maps=maps)


def _canonical_roles(strategy: ScaleVectorStrategy, *, separated: bool) -> tuple[str, tuple[str, ...]]:
    """The role of output vectors, and the maps whose vectors are input-norm ones beside it.

    ``separated`` says whether decay tells the roles apart.
    """
    default = ScaleVectorStrategy()
    if not strategy.is_dual or not separated:
        return default.dual_output_role, default.input_role_maps
    inputs = tuple(name for name in strategy.dual_maps if strategy.output_role(name) == "input")
    return ("input", ()) if inputs == strategy.dual_maps else ("output", inputs)


def _may_normalize_per_head(strategy: ScaleVectorStrategy, name: str, architecture: str) -> bool:
    """Whether ``normalize_per_head`` decides about the map ``name``."""
    return strategy.normalizes_output(name) and name not in OUTPUT_NORMS[architecture]


def _canonical_decay(strategy: ScaleVectorStrategy, architecture: str, is_mixture: bool) -> str:
    """The decay policy in words of all/none where only vectors of one role exist."""
    roles = set()
    if strategy.branches != "none":
        roles.add("input")
    norms = OUTPUT_NORMS[architecture]
    if any(strategy.has_norm_vector(name, architecture) for name in norms):
        roles.add("output")
    if is_mixture and norms and strategy.branches != "none":  # behind the sum over experts
        roles.add("output")
    if strategy.is_dual:
        roles |= set(map(strategy.output_role, strategy.dual_maps))
    decayed = {role for role in roles if strategy.decays(role)}
    if decayed == roles:
        return "all"
    return strategy.weight_decay if decayed else "none"
