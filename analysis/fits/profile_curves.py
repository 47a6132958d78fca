"""Profiles of the objective along every parameter of every arm, as a table to read or to draw."""

from typing import Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import data_of_arms, fitted_laws
from scalevec.analysis.fits.profile_likelihood import profile, refusal
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options

_OF_PAIRS = ("margin", "looks", "repeated_seeds", "settings")
_UNUSED = (*_OF_PAIRS, "hold_out", "interval", "bootstrap", "seed")
"""Options that a profile does not depend on."""


def profiles(
    results: pd.DataFrame, options: AnalysisOptions | None = None, **changes: Unpack[OptionChanges]
) -> pd.DataFrame:
    """Profile the objective: how far each parameter can move before the fit gets bad.

    Source: profile likelihood, for Huber's loss its robust form (Hampel et al. 1986, chapter 7); see
    :mod:`profile_likelihood`.

    Args:
        results: Tidy rows, one per trial, as for :func:`fit`.
        options: How to fit; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One row for each ``value`` of a ``parameter`` of an ``arm`` at which the others were fitted again:
        ``estimate`` is the best value, ``t`` the root of twice the objective's rise in units of the noise,
        ``low`` and ``high`` the interval at ``level``, nan on a side where the points leave it free.

    Raises:
        DataError: Bad values, a design that carries no profile, or L1, whose noise has no such scale.

    >>> compute = np.geomspace(1e12, 1e15, 12)
    >>> noise = np.random.default_rng(0).normal(0, 1e-3, 12)
    >>> table = pd.DataFrame({"n_params": compute**0.5, "n_tokens": compute**0.5 / 6})
    >>> table["loss"] = 40 * compute**-0.1 * np.exp(noise)
    >>> curves = profiles(table, law="power", x="C")
    >>> curves = curves[curves.parameter == "alpha"]
    >>> bool((curves.low < 0.1).all() and (curves.high > 0.1).all())
    True
    """
    arms = data_of_arms(results, chosen_options(options, changes, unused=_UNUSED))
    laws = fitted_laws(arms)
    jointly = bool(laws[0].points.law.per_arm)
    n_clusters = [data.clusters.nunique() for data in arms]
    curves = []
    for number, (data, law) in enumerate(zip(arms, laws, strict=True)):
        if reason := data.doubt or refusal(law, sum(n_clusters) if jointly else n_clusters[number]):
            raise DataError(reason)
        for name in law.points.law.parameters:
            curve = profile(law, name, data.options.level, number if jointly else 0)
            low, high = (np.nan if end is None else end for end in (curve.low, curve.high))
            columns = {"arm": data.arm, "parameter": name, "estimate": curve.estimate}
            columns |= {"value": curve.values, "t": curve.t, "low": low, "high": high}
            curves.append(pd.DataFrame(columns))
    return pd.concat(curves, ignore_index=True)
