"""The interval with more seeds: now the comparison's own, later the one that is then seen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.power.next_trials import ExtendableSize, halves_of_pairs
from scalevec.analysis.statistics.more_seeds import MoreSeeds
from scalevec.analysis.statistics.paired import overall
from scalevec.analysis.statistics.sample import WHOLE_SEEDS, PairedSample

KEPT = Path(__file__).parents[3] / "benchmarks" / "reference" / "quickstart" / "results.csv"


def half(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return (interval[1] - interval[0]) / 2


def sizes_of(rows: pd.DataFrame) -> list[ExtendableSize]:
    places = rows[["rung", "n_params", "n_tokens"]].drop_duplicates("rung")
    return [ExtendableSize(rung, rung, n, d, 2, 1.0) for rung, n, d in places.itertuples(index=False)]


def table_of(seeds: int, settings: int) -> pd.DataFrame:
    """Three arms at four rungs, in so many settings."""
    rng, rows = np.random.default_rng(seeds), []
    for rung, n in enumerate((2e4, 5e4, 1e5, 2e5)):
        for setting in range(settings):
            for seed in range(seeds):
                common = 6 - 0.3 * rung + 0.1 * setting + 0.05 * rng.standard_normal()
                for arm, gain in (("baseline", 0.0), ("a", 0.03), ("b", 0.01)):
                    loss = common - gain + 0.01 * rng.standard_normal()
                    scale = {"optimizer": f"o{setting}", "n_params": n, "n_tokens": 16 * n}
                    rows.append({"arm": arm, "rung": f"r{rung}", **scale, "seed": seed, "loss": loss})
    return pd.DataFrame(rows)


TABLES = {
    "kept results": lambda: pd.read_csv(KEPT),
    "one setting": lambda: table_of(3, 1),
    "two settings": lambda: table_of(2, 2),
}


@pytest.mark.parametrize("name", TABLES)
def test_without_a_seed_more_it_is_the_interval_of_compare(name):
    rows, options = TABLES[name](), AnalysisOptions(bootstrap=0)
    compared = analysis.compare(rows, reference="baseline", options=options)
    sizes, trials = sizes_of(rows), compared_trials(rows, "baseline", options)
    for is_trend in (False, True):
        halves = halves_of_pairs(sizes, trials, is_trend)
        of_arm = {c.arm: c.trend["interval"] if is_trend else c.loss_difference.interval for c in compared}
        assert halves.now == pytest.approx({arm: half(interval) for arm, interval in of_arm.items()})
        assert halves.expected(np.zeros(len(sizes), int)) == pytest.approx(list(halves.now.values()))


def drawn(
    rng: np.random.Generator, sds: Sequence[float], settings: int, seeds: int, share: float, unit: str
) -> PairedSample:
    """Pairs of which ``share`` of the variance is common to a rung's settings, or to all rungs."""
    rung, setting, seed = (
        each.ravel() for each in np.meshgrid(range(len(sds)), range(settings), range(seeds), indexing="ij")
    )
    cluster = seed if unit else rung * 100 + seed if share else np.arange(len(seed))
    common = rng.standard_normal(len(cluster))[cluster % len(cluster)]
    noise = np.sqrt(share) * common + np.sqrt(1 - share) * rng.standard_normal(len(seed))
    return PairedSample(
        np.array(sds)[rung] * noise, rung * 10 + setting, rung.astype(str), cluster, unit=unit
    )


@pytest.mark.parametrize(
    ("sds", "settings", "seeds", "more", "share", "unit"),
    [
        pytest.param([1, 1, 1, 1], 1, 3, 3, 0.0, "", id="independent rungs"),
        pytest.param([4, 3, 2, 1], 1, 4, 4, 0.0, "", id="noise that falls with size"),
        pytest.param([1, 1, 1], 3, 3, 2, 0.4, "", id="settings that share their seeds"),
        pytest.param([1, 1, 1, 1], 1, 4, 3, 0.5, WHOLE_SEEDS, id="whole seeds"),
    ],
)
def test_what_is_forecast_is_what_is_seen_once_the_seeds_have_come(sds, settings, seeds, more, share, unit):
    rng, forecast, seen = np.random.default_rng(0), [], []
    for _ in range(200):
        later = drawn(rng, sds, settings, seeds + more, share, unit)
        number = np.tile(np.arange(seeds + more), len(later.counts))
        now = later.kept(number < seeds)
        forecast.append(MoreSeeds(now).half(np.full(len(now.counts), more), 0.95))
        seen.append(overall(later).half_width)
    assert np.mean(forecast) == pytest.approx(np.mean(seen), rel=0.12)


def test_a_seed_of_one_rung_is_no_whole_seed():
    """Where a seed does the same at all rungs, one rung's seeds beyond the others' say little."""
    sample = drawn(np.random.default_rng(1), [1, 1, 1, 1], 1, 4, 0.8, WHOLE_SEEDS)
    single, all_four = (
        MoreSeeds(sample).half(np.array(added), 0.95) for added in ([4, 0, 0, 0], [1, 1, 1, 1])
    )
    assert all_four < single


def test_a_seed_that_another_rung_has_comes_before_new_ones():
    sample = drawn(np.random.default_rng(1), [1, 1], 1, 4, 0.5, WHOLE_SEEDS)
    uneven = sample.kept(~((sample.rungs == "1") & (sample.clusters >= 2)))
    grown = MoreSeeds(uneven).grown(np.array([0, 3]))
    assert sorted(grown.clusters[grown.cells == 1].tolist())[:4] == [0, 1, 2, 3]
    assert len(np.unique(grown.clusters)) == 5
