"""Which pairs of an arm are independent, what was tested of it, and what an interval leaves out, in words."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.data.values import losses_by_block
from scalevec.analysis.formatting import degrees, f_test
from scalevec.analysis.statistics.noise import t_quantile
from scalevec.analysis.statistics.paired import Estimate, overall
from scalevec.analysis.statistics.sample import WHOLE_SEEDS, PairedSample
from scalevec.analysis.statistics.shared_seeds import PRETEST, SharedSeeds, by_rung_and_seed, shared_seeds
from scalevec.analysis.statistics.test_split import FEWEST_BLOCKS, SplitLosses

FEW_DEGREES = 4
"""With fewer degrees of freedom the cost of whole clusters in length is said."""
REPEATED = "and no stream is recorded"


@dataclass(frozen=True)
class Independence:
    """What settings and rungs that repeat seeds have in common, where no stream says that they differ.

    None where they repeat none, or the layout cannot tell. ``repeated_rungs``: rungs repeat seeds;
    ``stated``: the options say that these are independent all the same.
    """

    settings: SharedSeeds | None = None
    rungs: SharedSeeds | None = None
    repeated_rungs: bool = False
    stated: bool = False

    @classmethod
    def of(cls, pairs: Pairs) -> "Independence":
        """Test what the complete ``pairs`` share. Recorded streams say it, so nothing is tested then."""
        if pairs.complete.empty or pairs.records_streams or not pairs.names_seeds:
            return cls()
        rungs, seeds = (pairs.complete[name].astype(str).to_numpy(str) for name in ("rung", "seed"))
        tested = cls.tested(pairs.differences, pairs.cells, rungs, seeds)
        return replace(tested, stated=pairs.seeds_differ)

    @classmethod
    def tested(
        cls, values: FloatArray, cells: FloatArray, rungs: npt.NDArray[Any], seeds: npt.NDArray[Any]
    ) -> "Independence":
        """Test what ``values`` share of which the ``seeds`` repeat (each [pairs])."""
        means, places, numbers, units = by_rung_and_seed(values, cells, rungs, seeds)
        return cls(
            shared_seeds(values, cells, units, "settings"),
            shared_seeds(means, places, numbers, "rungs"),
            len(np.unique(numbers)) < len(numbers),
        )

    @property
    def whole_seeds(self) -> bool:
        """Whether a seed's pairs of all rungs count as one cluster."""
        return not self.stated and self.rungs is not None and self.rungs.p_value < PRETEST

    @property
    def may_share(self) -> bool:
        """Whether rungs repeat seeds of which nothing says that they differ from rung to rung."""
        return self.repeated_rungs and not self.stated

    @property
    def tests(self) -> tuple[SharedSeeds, ...]:
        """The tests that the design allows."""
        return tuple(test for test in (self.settings, self.rungs) if test is not None)

    def sample(self, pairs: Pairs) -> PairedSample:
        """The complete pairs with the clusters that follow, and their losses by block of the test split."""
        rungs = pairs.complete["rung"].astype(str).to_numpy(str)
        sample = PairedSample.of(pairs.differences, pairs.cells, pairs.clusters, rungs)
        sample = independent_sample(self, sample, _seeds(pairs))
        blocks = losses_by_block(pairs.complete)
        if blocks is None or len(blocks[1]) < FEWEST_BLOCKS:
            return sample
        return replace(sample, split=SplitLosses(*blocks))

    def over_seeds(self, pairs: Pairs, sample: PairedSample) -> Estimate | None:
        """The mean with whole seeds as what varies; None where nothing says that rungs may share them."""
        return overall(over_whole_seeds(sample, _seeds(pairs))) if self.may_share else None

    def clauses(self, estimate: Estimate) -> list[str]:
        """What the sentence of a verdict adds of an interval: what it assumes and what it leaves out."""
        assumed = self.repeated_rungs and not self.whole_seeds
        return [
            *([f"rungs repeat seeds and are {self._taken_for}"] if assumed else []),
            *(["the test split's own error is left out"] if estimate.split_error is None else []),
        ]

    def warnings(self, estimate: Estimate, sample: PairedSample) -> list[str]:
        """The tests, the cost of few clusters in length, and what the test split contributes."""
        return [*self._tested(), *_cost(estimate, sample), *_contributions(estimate, sample)]

    @property
    def _taken_for(self) -> str:
        return "stated to be independent" if self.stated else "assumed independent"

    def _tested(self) -> list[str]:
        sentences = []
        if self.settings is not None:
            counted = f"settings repeat seeds {REPEATED}: pairs of one rung and seed count as one"
            sentences.append(f"{counted} ({_shown(self.settings)})")
        if self.rungs is not None and self.whole_seeds:
            counted = "rungs that repeat a seed share an effect of it: whole seeds are what varies"
            sentences.append(f"{counted} ({_shown(self.rungs)})")
        elif self.rungs is not None:
            assumed = f"rungs repeat seeds {REPEATED}: they are {self._taken_for}"
            sentences.append(f"{assumed} ({_shown(self.rungs)})")
        return sentences


def independent_sample(
    independence: Independence, sample: PairedSample, seeds: npt.NDArray[Any]
) -> PairedSample:
    """Return ``sample`` with whole ``seeds`` [pairs] as clusters, where rungs were found to share them."""
    return over_whole_seeds(sample, seeds) if independence.whole_seeds else sample


def over_whole_seeds(sample: PairedSample, seeds: npt.NDArray[Any]) -> PairedSample:
    """Return ``sample`` with the pairs of one of ``seeds`` [pairs] as one cluster, whatever their rung."""
    return replace(sample, clusters=seeds, unit=WHOLE_SEEDS)


def _seeds(pairs: Pairs) -> npt.NDArray[Any]:
    """The seed of each complete pair, as text [complete pairs]."""
    return np.asarray(pairs.complete["seed"].astype(str).to_numpy(str))


def _shown(test: SharedSeeds) -> str:
    return (
        f"shared: {test.share:.2f} of the variance of a difference, {f_test(test.f, test.df, test.p_value)}"
    )


def _cost(estimate: Estimate, sample: PairedSample) -> list[str]:
    """How much longer an interval over few whole clusters is for its degrees of freedom alone."""
    independent = len(sample.values) - len(sample.counts)
    if not (sample.dependent and 0 < estimate.df < min(FEW_DEGREES, independent)):
        return []
    longer = t_quantile(0.95, estimate.df) / t_quantile(0.95, independent)
    return [
        f"{degrees(estimate.df)} from whole clusters: at equal noise the interval is {longer:.1f} times as "
        f"long as with the {independent} of independent pairs; more seeds would shorten it"
    ]


def _contributions(estimate: Estimate, sample: PairedSample) -> list[str]:
    if not estimate.has_noise or estimate.split_error is None or sample.split is None:
        return []
    return [
        f"standard error {estimate.standard_error:.4f}: {estimate.seeds_error:.4f} from seeds, "
        f"{estimate.split_error:.4f} from the test split ({len(sample.split.tokens)} blocks)"
    ]
