"""Predictions as lines of text and as a table of a page, each with its distance from the data."""

from collections.abc import Iterator, Mapping, Sequence

from scalevec.analysis.fits.ahead import PredictedPoint
from scalevec.analysis.fits.compute_optimal import BestOfBudget, Quantity
from scalevec.analysis.fits.fit import Fit
from scalevec.analysis.fits.predict import Forecast
from scalevec.analysis.formatting import aligned, limits, named_with_unit, percent
from scalevec.analysis.report.text import held_out_lines
from scalevec.analysis.tables.content import Table


def forecast_text(forecast: Forecast) -> str:
    """One arm: its law, hold-out, points and budgets with intervals, conventions, warnings."""
    return "\n  ".join([f"{forecast.fit.arm}: {forecast.fit.formula}", *_lines(forecast)])


def _lines(forecast: Forecast) -> Iterator[str]:
    fit = forecast.fit
    yield from held_out_lines(fit.hold_out)
    if forecast.points:
        yield from aligned([_columns(fit), *(_cells(point) for point in forecast.points)], 1)
    if forecast.budgets:
        columns = (
            "C",
            "by",
            "N*",
            "D*",
            "tokens per parameter",
            named_with_unit(fit.y, fit.unit),
            "beyond the data",
        )
        best = [(flops, of_one) for flops, of_all in forecast.budgets.items() for of_one in of_all]
        yield from aligned([columns, *(_budget_cells(flops, of_one) for flops, of_one in best)], 2)
        yield f"in parentheses: {percent(fit.level)} intervals"
    yield f"interval: {fit.interval_note}"
    yield fit.conventions
    yield from (f"warning: {warning}" for warning in (*forecast.warnings, *fit.warnings))


def _columns(fit: Fit) -> tuple[str, ...]:
    level, y = percent(fit.level), "N*" if fit.optima else named_with_unit(fit.y, fit.unit)
    return ("at", y, f"{level} of the law", f"{level} of one run", "beyond the data")


def _cells(point: PredictedPoint) -> tuple[str, ...]:
    at = ", ".join(f"{name} {value:.4g}" for name, value in point.at.items())
    spans = (limits(ends, ".5g") if ends else "none" for ends in (point.confidence, point.prediction))
    return (f"{point.name} ({at})" if point.name else at, f"{point.value:.5g}", *spans, beyond(point.decades))


def _budget_cells(flops: float, best: BestOfBudget) -> tuple[str, ...]:
    shown = (best.n, best.d, best.tokens_per_parameter, best.loss)
    return (f"{flops:.4g}", best.by, *map(_estimate, shown), beyond(best.decades))


def _estimate(estimate: Quantity | None) -> str:
    if estimate is None:
        return ""
    ends = f" ({limits(estimate.interval, '.4g')})" if estimate.interval else ""
    return f"{estimate.value:.4g}{ends}"


def beyond(decades: Mapping[str, float]) -> str:
    """The variable in which a point lies furthest from the data, ``+1.00 decades of C``."""
    name, distance = max(decades.items(), key=lambda item: abs(item[1]))
    return f"{distance:+.2f} decades of {name}".replace("-", "−") if distance else "inside"


def ahead_table(fits: Sequence[Fit]) -> Table | None:
    """The laws at the largest compute and beyond; None where no law has a larger compute."""
    shown = [fit for fit in fits if fit.ahead]
    if not shown:
        return None
    columns = ("arm", *_columns(shown[0]), "hold-out")
    rows = tuple((fit.arm, *_cells(point), _error(fit)) for fit in shown for point in fit.ahead)
    note = (
        "At the tokens per parameter of the largest run. The interval of one run adds a run's own noise to "
        "that of the law; neither covers a law of the wrong form, of which the hold-out's error is a measure."
    )
    return Table("Predictions", columns, rows, (False, False, True, True, True, True, True), (note,))


def _error(fit: Fit) -> str:
    error = fit.hold_out.get("relative_error")
    return "none" if error is None else f"{100 * error:+.2f} %".replace("-", "−")
