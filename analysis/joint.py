"""Arms fitted together, with exponents and floor in common, and whether that is worse than separate fits.

The statistic is the classical F of nested models, from least squares whatever the loss of the fit itself:
absolute deviations (and Huber's loss with a delta far below the residuals) are flat between few points, and
say nothing of a common exponent. Residuals count as independent: arms that share seeds make it conservative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.data import DataError, FloatArray
from analysis.estimate import Estimated, estimated
from analysis.laws import Law
from analysis.parametrisation import Options, Parametrisation, require_identifiable

ArmData = tuple[Mapping[str, FloatArray], FloatArray]
"""One arm's variables (name -> [points]) and losses [points]."""


def coefficients(law: Law) -> tuple[str, ...]:
    """What arms keep for themselves in a joint fit: the coefficients of the power terms."""
    return law.own or tuple(term.coefficient for term in law.terms if term.variable)


def joint_fit(arms: Sequence[ArmData], law: Law, options: Options, x: str = "C") -> Estimated:
    """Fit all arms at once; each keeps :func:`coefficients`. Raises :class:`DataError` if not identified."""
    if len(arms) < 2:
        raise DataError(f"law {law.name} joins several arms; there is one: use its form for a single arm")
    names = arms[0][0].keys()
    variables = {name: np.concatenate([data[name] for data, _ in arms]) for name in names}
    groups = np.repeat(np.arange(len(arms)), [len(y) for _, y in arms])
    points = Parametrisation(law, variables, groups=groups, own=coefficients(law))
    require_identifiable(points, "all", x)
    if len(groups) < len(points.free):
        raise DataError(f"{len(groups)} points for {len(points.free)} parameters of a joint {law.name} fit")
    return estimated(points, np.concatenate([y for _, y in arms]), options)


def separate_fits(arms: Sequence[ArmData], law: Law, options: Options) -> list[Estimated]:
    """Fit each arm alone. Raises :class:`DataError` for an arm that leaves a parameter free."""
    found = []
    for number, (variables, y) in enumerate(arms):
        points = Parametrisation(law, variables)
        require_identifiable(points, str(number), "C")
        found.append(estimated(points, y, options))
    return found


def likelihood_comparison(
    arms: Sequence[ArmData], law: Law, options: Options, x: str = "C", *, independent: bool = True
) -> dict[str, Any]:
    """Joint against separate: sums of squares, F, degrees of freedom and p; ``reason`` where there is none.

    ``independent`` says whether the points of each arm are: else F would count each of them as one.
    """
    options = replace(options, loss="l2")
    try:
        joint = joint_fit(arms, law, options, x)
        separate = separate_fits(arms, law, options)
    except DataError as error:
        return {"reason": f"not compared: {error}"}
    together = sum(fit.objective for fit in separate)
    n_free = sum(fit.theta.size for fit in separate)
    extra, df = n_free - joint.theta.size, len(joint.y) - n_free
    shared = [name for name in law.inner if name not in coefficients(law)]
    result = {
        "shared": shared,
        "squares_joint": 2 * joint.objective,
        "squares_separate": 2 * together,
        "df": [extra, df],
    }
    if df < 1 or min(len(fit.y) - fit.theta.size for fit in separate) < 1:
        return {**result, "reason": f"not tested: {len(joint.y)} points for {n_free} parameters"}
    if not independent:
        return {**result, "reason": "not tested: points of one cluster are not independent"}
    if not all(fit.optimal for fit in (joint, *separate)):
        return {**result, "reason": "not tested: one of the fits is not a verified optimum"}
    from scipy.special import fdtrc

    if together <= 0:
        return {**result, "reason": "not tested: the separate fits leave no residuals"}
    statistic = max((joint.objective - together) / extra / (together / df), 0.0)
    return {**result, "statistic": statistic, "p_value": float(fdtrc(extra, df, statistic))}
