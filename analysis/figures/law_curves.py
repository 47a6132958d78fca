"""Loss against size or compute with the fitted laws, what is left of them, and multipliers along compute."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import FloatArray, variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.figure_input import FigureInput, named_setting
from scalevec.analysis.figures.panels import Drawing, Key, Panel
from scalevec.analysis.figures.style import ArmStyle, draw_curve, draw_points, font_points, ink
from scalevec.analysis.fits.hold_out import held_rows
from scalevec.analysis.fits.predicted_points import FACTORS, FittedArm
from scalevec.analysis.formatting import count, loss_name, named_with_unit, percent, plural
from scalevec.analysis.formula.formula import PowerTerm
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, AnalysisOptions
from scalevec.analysis.tables.notes import remark_notes

AXES = {"N": "parameters N", "D": "training tokens D", "C": "compute C (FLOPs)"}
MOST_EQUATIONS = 4
"""Laws that are written into a panel."""
MULTIPLIERS = 31
"""Points of a curve of them."""
Laws = Mapping[str, FittedArm]
Curves = Mapping[str, Sequence[pd.DataFrame]]
"""By arm."""


def draw_loss(data: FigureInput) -> Drawing:
    """Draw the loss of completed trials against N, D or C, with each arm's law and its band.

    Each setting in which the law can stand has a column: above the losses, below their residuals to the
    reference's law. Raises :class:`DataError` where all trials have one size.
    """
    parts = _parts(data)
    options = data.trials.options
    if not any(np.ptp(variable_of(part.completed, _axis(options), options)) for part in parts.values()):
        raise DataError("the trials have one size: the figure differences shows them")
    return _drawing(data, parts, {name: _laws(part)[0] for name, part in parts.items()}, 1.0)


def draw_predictions(data: FigureInput) -> Drawing:
    """Draw the same to ten times the largest compute, thin beyond the data; bands of one more run too."""
    parts = _parts(data)
    fitted = {name: _laws(part) for name, part in parts.items()}
    laws = {name: of_part for name, (of_part, _) in fitted.items() if of_part}
    if not laws:
        reasons = dict.fromkeys(reason for _, of_part in fitted.values() for reason in of_part)
        raise DataError("; ".join(reasons) or f"law {data.trials.options.law} has no larger compute")
    return _drawing(data, {name: parts[name] for name in laws}, laws, max(FACTORS.values()))


def _parts(data: FigureInput) -> dict[str, ComparedTrials]:
    """Return the parts with a completed trial through each of which a law can go, by their settings."""
    parts = {named_setting(setting): part for setting, part in data.trials.law_parts}
    parts = {name: part for name, part in parts.items() if len(part.completed)}
    if not parts:
        raise DataError("no trial is completed")
    return parts


def _laws(part: ComparedTrials) -> tuple[dict[str, FittedArm], list[str]]:
    """Return the law of each arm that is a line in N, D or C, and why others have none."""
    if law_named(part.options.law).method != "points":
        return {}, [f"law {part.options.law} is of optima, not of losses"]
    laws, reasons = part.laws
    return {arm: law for arm, law in laws.items() if len(law.line(FACTORS))}, reasons


def _axis(options: AnalysisOptions) -> str:
    """Return x of the options, or compute for a law of several variables."""
    variables = law_named(options.law).variables
    return options.x if variables == ("x",) else variables[0] if len(variables) == 1 else "C"


def _drawing(
    data: FigureInput, parts: Mapping[str, ComparedTrials], laws: Mapping[str, Laws], farthest: float
) -> Drawing:
    """Return the figure of ``parts`` with their ``laws`` to ``farthest`` times the largest compute."""
    options, reference = data.trials.options, data.trials.reference
    label = named_with_unit(options.y, options.unit)
    curves = {
        name: {arm: _curves(law, farthest) for arm, law in of_part.items()} for name, of_part in laws.items()
    }
    panels: dict[Key, Panel] = {
        (label, name): partial(_draw, data, part, laws[name], curves[name], None)
        for name, part in parts.items()
    }
    below: dict[Key, Panel] = {
        ("residual (%)", name): partial(_draw, data, part, laws[name], curves[name], laws[name][reference])
        for name, part in parts.items()
        if reference in laws[name]
    }
    if not below:
        panels = {("", name): panel for (_, name), panel in panels.items()}
    rows = pd.concat([part.completed for part in parts.values()])
    every = (curve for of_part in curves.values() for of_arm in of_part.values() for curve in of_arm)
    has_bands = any(curve["low"].notna().any() for curve in every)  # a law that misses the runs has none
    return Drawing(
        panels | below,
        (AXES.get(_axis(options), _axis(options)), label),
        _caption(data, rows, laws, farthest, has_bands=has_bands),
        data.legend(rows["arm"]),
        height=1.7 if below else 2.6,
        share=("all", "row"),
        ratios=(1.8, 1.0) if below else (),
    )


def _caption(
    data: FigureInput, rows: pd.DataFrame, laws: Mapping[str, Laws], farthest: float, *, has_bands: bool
) -> str:
    options, reference = data.trials.options, data.trials.reference
    fitted = [law for of_part in laws.values() for law in of_part.values()]
    parts = [f"Points: {loss_name(options.y, options.unit)} of {len(rows)} trials "]
    parts[0] += f"({plural(rows['seed'].nunique(), 'seed')})."
    if fitted:
        ratio = "" if len(fitted[0].seen) == 1 else " at the tokens per parameter of its largest run"
        is_beyond = farthest > 1
        run = " and, paler, of one further run, with the law's own error" * is_beyond
        bands = f"; bands: {percent(options.level)} of the law{run}" * has_bands
        thin = "; thin: beyond the data" * is_beyond
        parts += [f"Lines: {formula_of(options)} for each arm{ratio}{bands}{thin}."]
    if any("predicted" in law.held for law in fitted):
        parts += ["Hollow: what the law of the other trials predicts of the rung held out."]
    if any(reference in of_part for of_part in laws.values()):
        parts += [f"Below: residuals to the law of {reference}."]
    parts += [f"C: {C_CONVENTIONS[options.c_convention]}; N: {N_CONVENTIONS[options.n_convention]}."]
    if farthest > 1:
        notes = [(str(note), law.data.arm) for law in fitted for note in law.predict()["note"] if note]
        parts += remark_notes(notes)
    return " ".join(parts)


def _draw(
    data: FigureInput, part: ComparedTrials, laws: Laws, curves: Curves, over: FittedArm | None, axis: Axes
) -> None:
    """Draw the panel of a part: its losses, or their residuals ``over`` another law in percent."""
    options = replace(data.trials.options, where=None)
    columns = {name: options.x if name == "x" else name for name in law_named(options.law).variables}
    for arm in part.arms:
        rows = part.of_arm(arm, "completed")
        style, law = data.styles[arm], laws.get(arm)
        values = {name: variable_of(rows, of, options) for name, of in columns.items()} if laws else {}
        x, y = variable_of(rows, _axis(options), options), _over(over, values, rows["loss"].to_numpy(float))
        names = None if over else trial_names(rows, data.trials.varying_settings)
        draw_points(axis, x, y, style, names)
        for curve in curves.get(arm, ()):
            at = {name: curve[columns[name]].to_numpy(float) for name in values}
            y, *ends = (_over(over, at, curve[name].to_numpy(float)) for name in ("value", "low", "high"))
            draw_curve(
                axis, curve["drawn at"].to_numpy(float), y, ends, style, curve["decades"].to_numpy() > 0
            )
        if law and "predicted" in law.held:
            held = held_rows(rows, options, options.hold_out)
            at = {name: np.exp(np.log(of[held]).mean(keepdims=True)) for name, of in values.items()}
            predicted = _over(over, at, np.array([law.held["predicted"]]))
            where = np.exp(np.log(x[held]).mean(keepdims=True))
            (ring,) = axis.plot(where, predicted, style.marker, fillstyle="none", markersize=7)
            ring.set(color=style.color, gid=style.gid)
    axis.set(xscale="log", yscale="linear" if over else "log", ymargin=0.1)
    if over is None and len(laws) <= MOST_EQUATIONS:
        _write_equations(axis, {data.styles[arm]: law for arm, law in laws.items()})


def _write_equations(axis: Axes, laws: Mapping[ArmStyle, FittedArm]) -> None:
    """Write the laws into the lower left of a panel, where losses that fall leave room."""
    texts = [(style, equation(law)) for style, law in laws.items()]
    for line, (style, text) in enumerate(reversed(texts)):
        axis.annotate(
            text,
            (0, 0),
            (4, 4 + 12 * line),
            xycoords="axes fraction",
            textcoords="offset points",
            color=style.color,
            fontsize=font_points("legend.fontsize"),
            gid=style.gid,
            parse_math=True,
        )


def equation(law: FittedArm) -> str:
    """The law with its numbers, as ``$1.7 + 406 N^{-0.34}$``; empty where it is no sum of powers."""
    form, values = law.law.points.law, law.law.parameters(law.number)
    terms = form.written.terms
    known = {name for term in terms for name in (term.coefficient, term.exponent)} | {form.floor}
    variables = {law.shown(term.variable) for term in terms} - {""}
    if not terms or values.keys() - known or variables - AXES.keys():
        return ""
    return f"${' + '.join(_digits(values[term.coefficient]) + _power(term, values, law) for term in terms)}$"


def _power(term: PowerTerm, values: Mapping[str, float], law: FittedArm) -> str:
    exponent = values[term.exponent] if term.exponent else 1.0
    sign = "" if term.rising else "-"
    return rf"\,{law.shown(term.variable)}^{{{sign}{exponent:.3g}}}" if term.variable else ""


def _digits(value: float) -> str:
    digits, _, power = f"{value:.3g}".partition("e")
    return rf"{digits}\times10^{{{int(power)}}}" if power else digits


def _over(other: FittedArm | None, at: Mapping[str, FloatArray], loss: FloatArray) -> FloatArray:
    """Return ``loss`` in percent above another law at the same points; as it is without one."""
    if other is None:
        return loss
    return np.asarray(100 * (loss / other.values(other.law.theta[None], at)[0] - 1))


def _curves(law: FittedArm, farthest: float) -> list[pd.DataFrame]:
    """Return the law with its band, and with that of a further run too where it is asked beyond the data."""
    curves = [law.curve(farthest, interval) for interval in (("law", "run") if farthest > 1 else ("law",))]
    for curve in curves:  # at less compute than any run had it says nothing
        curve.loc[curve["decades"] < 0, ["value", "low", "high"]] = np.nan
    return curves


def trial_names(rows: pd.DataFrame, settings: list[str]) -> list[str]:
    """Return a name for each of ``rows``, trials: arm, rung, settings, tokens, seed, loss."""
    names = []
    for row in rows.to_dict("records"):
        where = [
            row["arm"],
            row["rung"],
            *(row[name] for name in settings),
            f"{count(row['n_tokens'])} tokens",
        ]
        trial = f" (trial {str(row['trial_id'])[:12]})" if "trial_id" in row else ""
        names.append(f"{', '.join(map(str, where))}, seed {row['seed']}: {row['loss']:.4f}{trial}")
    return names


def draw_multipliers(data: FigureInput) -> Drawing:
    """Draw the compute multiplier of each arm against compute, a panel for each setting.

    The line is thin where the reference's law is extrapolated; laws that the runs refute are not drawn;
    markers stand at the compute of the runs.
    """
    laws: dict[Key, dict[str, ArmLaws]] = {}
    reasons, remarks = [], []
    for setting, part in data.trials.lines():
        for arm in part.others:
            of_arm = laws_to_show(part.paired(arm))
            if of_arm.laws is None:
                reasons.append(f"{arm}: {of_arm.reason}")
            else:
                laws.setdefault(("", named_setting(setting)), {})[arm] = of_arm.laws
                remarks += [(text, arm) for text in [of_arm.unchecked] if text]
    if not laws:
        raise DataError(
            "; ".join(f"no multiplier of {reason}" for reason in dict.fromkeys(reasons))
            or "an arm alone has none"
        )
    reference = data.trials.reference
    caption = (
        f"How many times the compute {reference} needs for the arm's loss. Markers: runs; bands: "
        f"{percent(data.trials.options.level)} t interval from seed noise; thin: beyond the range of "
        f"{reference}."
    )
    return Drawing(
        {key: partial(_draw_multipliers, of_setting, data) for key, of_setting in laws.items()},
        (AXES["C"], "compute multiplier"),
        " ".join([caption, *remark_notes(remarks)]),
        data.legend(arm for of_setting in laws.values() for arm in of_setting),
        height=2.8,
    )


def _draw_multipliers(laws: dict[str, ArmLaws], data: FigureInput, axis: Axes) -> None:
    axis.axhline(1, color=ink(), linewidth=0.8)
    for arm, of_arm in laws.items():
        _draw_multiplier(axis, of_arm, data.styles[arm])
    axis.set(xscale="log", yscale="log")


def _draw_multiplier(axis: Axes, laws: ArmLaws, style: ArmStyle) -> None:
    """Draw the multiplier over the compute at which both sides were run."""
    low, high = max(np.min(x) for x in laws.x), min(np.max(x) for x in laws.x)
    along = [laws.multiplier("grid", c) for c in np.geomspace(low, high, MULTIPLIERS)]
    bounds = np.array([each.interval or (np.nan, np.nan) for each in along]).T
    values = np.array([each.estimate for each in along], float)
    is_beyond = np.array([each.extrapolated for each in along])
    draw_curve(axis, np.array([each.at_flops for each in along]), values, bounds, style, is_beyond)
    # Markers stand where runs are, and nowhere else: a reader takes them for data.
    runs = np.unique(laws.x[1])
    runs = runs[(runs >= low) & (runs <= high)]
    draw_points(axis, runs, np.array([laws.multiplier("run", c).estimate for c in runs], float), style)
