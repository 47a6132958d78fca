"""Profiles of the objective along every parameter of every arm, as a table to read or to draw."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis import joint
from analysis.data import DataError, checked
from analysis.estimate import Estimated, estimated
from analysis.parametrisation import require_identifiable
from analysis.profile import Profile, profile, refusal
from analysis.settings import FitSettings, settings_from
from analysis.subjects import Subject, comparison_arms, subject_of
from analysis.where import select


def profiles(results: pd.DataFrame, *, where: str | None = None, **settings: Any) -> pd.DataFrame:
    """How far each parameter can move before the fit gets bad; see :mod:`analysis.profile`.

    One row for each ``value`` at which the other parameters were fitted anew: ``t`` is the root of twice the
    objective's rise in units of the noise, ``low`` and ``high`` the interval at ``level``, empty on a side
    where the points leave the parameter free. ``settings`` are the fields of :class:`FitSettings`. Raises
    :class:`DataError` for bad values, for designs that carry no profile and for L1.

    >>> compute = np.geomspace(1e12, 1e15, 12)
    >>> noise = np.random.default_rng(0).normal(0, 1e-3, 12)
    >>> table = pd.DataFrame({"n_params": compute**0.5, "n_tokens": compute**0.5 / 6})
    >>> table["loss"] = 40 * compute**-0.1 * np.exp(noise)
    >>> curves = profiles(table, law="power", x="C")
    >>> curves = curves[curves.parameter == "alpha"]
    >>> bool((curves.low < 0.1).all() and (curves.high > 0.1).all())
    True
    """
    selected = select(results, where)
    chosen = settings_from(settings).resolved(selected)
    table = checked(selected, chosen.needed_columns())
    subjects = [subject_of(table[table["arm"] == arm], chosen) for arm in comparison_arms(table)]
    found = []
    for subject, fit, arm in _fits(subjects, chosen):
        for name in fit.points.law.parameters:
            curve = _curve(profile(fit, name, chosen.level, arm))
            curve.insert(0, "arm", subject.arm)
            found.append(curve)
    return pd.concat(found, ignore_index=True)


def _curve(found: Profile) -> pd.DataFrame:
    low, high = (np.nan if end is None else end for end in (found.low, found.high))
    ends = {"value": found.values, "t": found.t, "low": low, "high": high}
    return pd.DataFrame({"parameter": found.name, "estimate": found.estimate, **ends})


def _fits(subjects: list[Subject], settings: FitSettings) -> Iterator[tuple[Subject, Estimated, int]]:
    """Each arm with its fit and its place in it: a fit of its own, or one that all arms share."""
    law, options = settings.functional_form, settings.options
    if law.own:
        data = [(subject.points.variables, subject.y) for subject in subjects]
        shared = joint.joint_fit(data, law, options, settings.x)
        _require_profile(shared, sum(subject.clusters.nunique() for subject in subjects))
        yield from ((subject, shared, arm) for arm, subject in enumerate(subjects))
        return
    for subject in subjects:
        require_identifiable(subject.points, subject.arm, settings.x)
        own = estimated(subject.points, subject.y, subject.settings.options)
        _require_profile(own, subject.clusters.nunique())
        yield subject, own, 0


def _require_profile(fit: Estimated, n_clusters: int) -> None:
    """Raises :class:`DataError` where the design carries no profile."""
    if reason := refusal(fit, n_clusters):
        raise DataError(reason)
