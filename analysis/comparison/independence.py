"""Which pairs of an arm are independent: what an interval assumes of them and leaves out."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.values import losses_by_block
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import WHOLE_SEEDS, PairedSample
from scalevec.analysis.statistics.test_split import FEWEST_BLOCKS, SplitLosses


def sample_of(pairs: Pairs) -> PairedSample:
    """The complete pairs with their clusters, and their losses by block of the test split.

    Rungs that repeat seeds share what a seed does, unless recorded streams or the user say that its random
    numbers differ from rung to rung: then a seed's pairs of all rungs are one cluster.
    """
    rungs = pairs.complete["rung"].astype(str).to_numpy(str)
    sample = PairedSample.of(pairs.differences, pairs.cells, pairs.clusters, rungs)
    if rungs_share_seeds(pairs) and not pairs.seeds_differ:
        sample = over_whole_seeds(sample, pairs.complete["seed"].astype(str).to_numpy(str))
    blocks = losses_by_block(pairs.complete)
    if blocks is None or len(blocks[1]) < FEWEST_BLOCKS:
        return sample
    return replace(sample, split=SplitLosses(*blocks))


def over_whole_seeds(sample: PairedSample, seeds: npt.NDArray[np.generic]) -> PairedSample:
    """Return ``sample`` with the pairs of one of ``seeds`` [pairs] as one cluster, whatever their rung."""
    return replace(sample, clusters=seeds, unit=WHOLE_SEEDS)


def rungs_share_seeds(pairs: Pairs) -> bool:
    """Whether seeds are repeated over rungs, and no stream says that they mean other numbers there."""
    if pairs.complete.empty or pairs.records_streams or not pairs.names_seeds:
        return False
    places = pairs.complete[["rung", "seed"]].astype(str).drop_duplicates()
    return bool(places["seed"].duplicated().any())


def assumptions(pairs: Pairs, estimate: Estimate) -> list[str]:
    """What the interval of a mean assumes of seeds and leaves out, as clauses of a sentence."""
    of_seeds = "stated to be independent" if pairs.seeds_differ else "taken to share what a seed does"
    return [
        *(["no seed in common: runs of a cell are paired in their order"] if pairs.in_order else []),
        *([f"rungs repeat seeds, {of_seeds}"] if rungs_share_seeds(pairs) else []),
        *(["the test split's own error is left out"] if estimate.split_error is None else []),
    ]
