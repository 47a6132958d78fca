"""Compare arms with a reference: four lines for each arm, the numbers behind them, and a verdict."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack

import pandas as pd

from scalevec.analysis.comparison import words
from scalevec.analysis.comparison.differences import (
    LossDifference,
    PairedArm,
    Part,
    RungDifference,
    cell_means,
)
from scalevec.analysis.comparison.fairness import Line, fair, tuning_of
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import of_laws
from scalevec.analysis.comparison.plan import dropped_trials, earlier_verdict, plan_of
from scalevec.analysis.comparison.predictions import Prediction, predictions_of
from scalevec.analysis.comparison.scale import KeptSigns, ScaleLine, kept_signs, with_scale
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.verdict import Evidence, Verdict, evidence_of_all
from scalevec.analysis.data.tidy import varying
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.result import ByArm
from scalevec.analysis.formatting import count, shortened
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options

FLAT = (
    *("law", "x", "y", "loss", "delta", "residual", "n_convention", "c_convention", "unit"),
    *("where", "level", "seed", "cluster", "repeated_seeds"),
)
"""The options that stand among the fields of a comparison in JSON."""


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference; the fields are those of ``scalevec compare --json``.

    Differences are arm minus reference in nats/token (or the unit of ``y``); multipliers are ratios, above
    one where the arm saves.

    Attributes:
        reference: The arm that is compared with.
        arm: The arm that is judged.
        verdict: ``better``, ``worse``, ``equivalent``, ``undecided``, ``incomplete`` or ``invalid``.
        scope: The sizes that the verdict speaks of.
        reason: Why it is no claim; None for a claim.
        at_sizes: Line 1, what holds at the sizes that were run. Each line has a ``code`` beside its ``text``.
        with_scale: Line 2, what becomes of a difference with scale, and by which ``measure``.
        fair: Line 3, whether both sides had their learning rates chosen alike, and with what effort.
        claim_status: Line 4, whether the question was asked before the results.
        sentence: The verdict with its figures, for people.
        loss_difference: The mean difference that decides with its interval and p-values.
        options: How it was compared: level, law, loss and conventions, with ``loss: auto`` decided.
        basis: ``pairs``, or ``laws`` where an arm without pairs is compared by the laws of both.
        pairs: Complete pairs: both sides completed, equal but for the arm.
        sizes: The difference at each size with its own interval and p, by size.
        settings: The same in each setting (optimizer, schedule) that varies.
        by_rung: The difference of each rung and setting, or at points of the line of laws; descriptive.
        compute_multipliers: How many times the arm's compute (FLOPs) the reference needs for the same loss,
            at the largest that both were run at.
        withheld: Why there is no multiplier: what refutes a law; empty where nothing does.
        trend: Change of the difference (nats/token) and of the multiplier per decade of compute.
        signs: At how many steps to the next size the difference kept its sign, of this arm and of all.
        equivalence: Two one-sided tests at every size against the margin, or why there are none.
        hold_out: The difference at the largest rung, predicted by laws of the other rungs, and as observed;
            ``fails`` where it lies outside of the prediction's ``interval``, ``laws_fail`` are the sides
            whose own loss does.
        warnings: Caveats, one sentence each, which names the arm that it is about.
        facts: What was chosen among the rows and dropped from the plan, a sentence each: no caveat.
        absences: The pairs without a difference by what became of them: a side that diverged, no result yet,
            failed, one side only.
        interim: How far the plan is, as ``interim: 3 of 8 pairs``; empty once a verdict is due.
        plan: Planned pairs, those with a result, the declared looks (numbers of seeds), the look reached and
            the next one, and the mean with its standard error over all pairs (``exploratory``) where some
            came after the verdict.
        predictions: What was predicted of the arm before its results, beside what was seen.
        laws: The fitted law of each side, with its optimality and starts.
        excluded: Number of rows of these arms that ``where`` of the options leaves out.
    """

    reference: str
    arm: str
    verdict: Verdict
    scope: Line
    reason: Line | None
    at_sizes: Line
    with_scale: ScaleLine
    fair: Line
    claim_status: Line
    sentence: str
    loss_difference: LossDifference
    options: AnalysisOptions
    basis: Literal["pairs", "laws"] = "pairs"
    pairs: int = 0
    sizes: tuple[Part, ...] = ()
    settings: tuple[Part, ...] = ()
    by_rung: tuple[RungDifference, ...] = ()
    compute_multipliers: tuple[Multiplier, ...] = ()
    withheld: str = ""
    trend: dict[str, Any] = field(default_factory=lambda: {"per_decade": None, "multiplier_per_decade": None})
    signs: KeptSigns | None = None
    equivalence: dict[str, Any] = field(default_factory=lambda: {"margin": None})
    hold_out: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    absences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    interim: str = ""
    plan: dict[str, Any] = field(default_factory=dict)
    predictions: tuple[Prediction, ...] = ()
    laws: tuple[dict[str, Any], ...] = ()
    excluded: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> dict[str, Line]:
        """The four lines of the answer, by what each is about."""
        return {
            "at sizes": self.at_sizes,
            "with scale": self.with_scale,
            "fair": self.fair,
            "claim": self.claim_status,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the options under their own names."""
        fields = dataclasses.asdict(self)
        options = fields.pop("options")
        return fields | {name: options[name] for name in FLAT} | {"n_bootstrap": options["bootstrap"]}


class Comparisons(ByArm[Comparison]):
    """The comparisons by arm, in the order of the table."""

    def to_frame(self) -> pd.DataFrame:
        """A row for each arm: its difference with interval (in the unit of y), verdict and the four lines."""
        return pd.DataFrame(
            [
                {
                    "arm": arm,
                    "verdict": each.verdict,
                    "scope": each.scope.text,
                    "difference": each.loss_difference.mean,
                    **dict(zip(("low", "high"), each.loss_difference.interval or (None, None), strict=True)),
                    "p_holm": each.loss_difference.p_holm,
                    "pairs": each.pairs,
                    **{name.replace(" ", "_"): line.text for name, line in each.lines.items()},
                }
                for arm, each in self.items()
            ]
        )

    def summary(self) -> str:
        """The sentence of each arm, a line each."""
        return "\n".join(comparison.sentence for comparison in self.values())

    __repr__ = summary

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format="{:.4f}".format))


def compare(
    results: pd.DataFrame,
    reference: str,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> Comparisons:
    """Compare every other arm with ``reference`` on paired comparison trials.

    Args:
        results: Tidy rows, one per trial: ``n_params``, ``n_tokens`` (counts) and ``loss`` (nats/token);
            ``arm``, ``rung``, ``seed``, ``cluster``, ``status`` and ``flops`` are used where present.
        reference: The arm that the others are compared with.
        options: How to compare; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        The :class:`Comparison` of each other arm by its name, in the order of the table, with p-values
        corrected by Holm over the arms. A column ``y`` is judged (by the margin too) only if its name starts
        with loss.

    Raises:
        DataError: A value, a column or a design that cannot be compared; the message says which.
    """
    trials = compared_trials(results, reference, chosen_options(options, changes))
    return Comparisons({each.arm: each for each in with_predictions(trials, compared(trials))})


def compared(trials: ComparedTrials) -> list[Comparison]:
    """Compare every other arm of ``trials`` with the reference. Raises :class:`DataError`."""
    if (interval := trials.options.interval) != "auto":
        raise DataError(f"interval is {interval!r}; a comparison chooses its own: allowed is 'auto'")
    require_common_cells(trials)
    family, notes = evidence_of_all(trials), words.of_reference(trials)
    laws = [of_laws(evidence.paired) for evidence in family]
    lines = with_scale(family, laws)
    signs = kept_signs([evidence.paired.sizes for evidence in family])
    return [
        _comparison(trials, evidence, fields | {"with_scale": line, "signs": sign}, notes)
        for evidence, fields, line, sign in zip(family, laws, lines, signs, strict=True)
    ]


def with_predictions(trials: ComparedTrials, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """``comparisons`` of all arms of ``trials``, each with what was predicted of it."""
    predicted = predictions_of(trials)
    return [dataclasses.replace(each, predictions=tuple(predicted[each.arm])) for each in comparisons]


def require_common_cells(trials: ComparedTrials) -> None:
    """Raise :class:`DataError` where no arm has anything in common with the reference."""
    all_pairs = [trials.pairs(arm) for arm in trials.others]
    if any(len(pairs.planned) for pairs in all_pairs):
        return
    rows, is_other = trials.rows, trials.rows["arm"] != trials.reference
    key = ", ".join([*all_pairs[0].cell_columns, "seed"])
    rungs, of_others = (
        shortened([f"{rung} ({count(tokens)} tokens)" for rung, tokens in places.itertuples(index=False)])
        for places in (
            rows.loc[side, ["rung", "n_tokens"]].drop_duplicates() for side in (~is_other, is_other)
        )
    )
    raise DataError(
        f"no arm has a trial in common with {trials.reference!r}: a pair agrees in {key}; rungs of "
        f"{trials.reference!r}: {rungs}; of the others: {of_others}. Laws need no pairs: `scalevec compare "
        "--by laws`, in Python scalevec.analysis.compare_arms"
    )


def _comparison(
    trials: ComparedTrials, evidence: Evidence, of_laws: Mapping[str, Any], notes: Sequence[str]
) -> Comparison:
    """All of one arm."""
    paired, judgement, line = evidence.paired, evidence.judgement, words.at_sizes(evidence)
    pairs, names, plan = paired.pairs, (paired.reference, paired.arm), plan_of(paired)
    caveats = [*words.of_pairs(paired), *earlier_verdict(paired, trials.source)]
    left_out = trials.left_out(names)
    return Comparison(
        reference=paired.reference,
        arm=paired.arm,
        verdict=judgement.verdict,
        scope=judgement.scope,
        reason=judgement.reason,
        at_sizes=line,
        fair=fair(pairs, *names, *tuning_of(trials.source, pairs, names, trials.varying_settings)),
        claim_status=words.claim_status(trials, plan),
        sentence=words.sentence(evidence, line, plan),
        pairs=len(pairs.complete),
        loss_difference=evidence.difference,
        sizes=paired.sizes,
        settings=paired.settings,
        by_rung=tuple(rung_differences(paired)),
        equivalence=evidence.equivalence,
        warnings=(*notes, *(f"{paired.arm}: {text}" for text in caveats)),
        facts=(*trials.chosen, *dropped_trials(trials.source, names)),
        absences={kind.value: names for kind, names in pairs.absences.items() if names},
        interim=f"interim: {paired.progress}" if pairs.is_interim else "",
        plan=plan,
        options=paired.options.with_loss(seeds_repeat=pairs.seeds_repeat),
        excluded={"where": left_out} if left_out else {},
        **of_laws,
    )


def rung_differences(paired: PairedArm) -> list[RungDifference]:
    """The difference in each cell, descriptive."""
    pairs, complete, cells = paired.pairs, paired.pairs.complete, paired.pairs.cells
    settings, level = varying(complete, pairs.settings), None if pairs.is_interim else paired.level
    rows = []
    for cell, difference in cell_means(paired.sample, cells.tolist(), level).items():
        of_cell = complete[cells == cell]
        first = of_cell.iloc[0]
        rows.append(
            RungDifference(
                rung=str(first["rung"]),
                n_params=int(first["n_params_reference"]),
                n_tokens=int(first["n_tokens"]),
                setting={name: str(first[name]) for name in settings},
                differences=tuple(pairs.differences[cells == cell].tolist()),
                seeds=tuple(map(str, of_cell["seed"])),
                n=difference.n,
                mean=difference.mean,
                interval=difference.interval,
            )
        )
    return rows
