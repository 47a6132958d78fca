"""The figures of a report, as SVG text for the page: one style, colour-blind safe, the same bytes every time.

The reference is drawn in the ink of the page; each arm has a colour of the Okabe-Ito palette and a marker.
"""

import html
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.bands import Band, band
from analysis.comparison import Comparison, RungDifference
from analysis.data import DataError, FloatArray, compute_of
from analysis.fitting import FitSettings
from analysis.tuning import setting_text
from analysis.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("scalevec.mplstyle")
INK, FAINT = "#111112", "#222223"
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("s", "^", "D", "v", "P", "X")


def _panels(n_panels: int) -> tuple[int, int]:
    """Rows and columns of small multiples: two or three a row, and no panel alone where that can be."""
    columns = 2 if n_panels in (2, 4) else min(3, n_panels)
    return -(-n_panels // columns), columns


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in all figures."""

    colour: str
    marker: str


def arm_styles(arms: Sequence[str], reference: str) -> dict[str, ArmStyle]:
    """Style of each arm: the reference ink and round, the others by their order."""
    others = [arm for arm in arms if arm != reference]
    styles = {reference: ArmStyle(INK, "o")}
    for index, arm in enumerate(others):
        shift = index // len(OKABE_ITO)
        marker = MARKERS[(index + shift) % len(MARKERS)]
        styles[arm] = ArmStyle(OKABE_ITO[index % len(OKABE_ITO)], marker)
    return styles


def _style() -> AbstractContextManager[None]:
    from matplotlib import style

    return style.context(STYLE)


def _figure(rows: int = 1, columns: int = 1, height: float = 4.1, **options: Any) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def svg(figure: "Figure", name: str, description: str) -> str:
    """The figure as an SVG element with its own ids, the page's colours and no reference to anything outside.

    ``name`` (letters) keeps the ids of several figures on one page apart; ``description`` is read aloud.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "var(--ink, #1b1f24)").replace(FAINT, "var(--faint, #8a929c)")
    for index, colour in enumerate(OKABE_ITO, start=1):
        text = text.replace(colour.lower(), f"var(--colour-{index}, {colour})")
    label = html.escape(description, quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip() + "\n"


def _label(name: str) -> str:
    """Legends skip names with a leading underscore, so it gets a blank."""
    return f" {name}" if name.startswith("_") else name


def _powers(value: float, _position: object = None) -> str:
    """A tick of a logarithmic axis, 3x10^11 in superscripts (mathtext is off: arm names may hold dollars)."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digits = value / 10.0**exponent
    raised = f"10{str(exponent).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"
    return raised if abs(digits - 1) < 1e-6 else f"{digits:.2g}×{raised}"


def _log_axis(axis: Any, low: float, high: float) -> None:
    """Ticks of a logarithmic axis: 1, 2, 5 in each decade, fewer over many decades."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    digits = (1, 2, 5) if high < 30 * low else (1, 3) if high < 1000 * low else (1,)
    decades = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    axis.set_major_locator(FixedLocator([d * 10.0**k for k in decades for d in digits]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_powers))


def _arm_band(rows: pd.DataFrame, settings: FitSettings) -> Band | None:
    try:
        return band(_compute(rows, settings), rows["loss"].to_numpy(float), settings)
    except DataError:  # the fit itself says why there is no law; the points are drawn all the same
        return None


def _compute(rows: pd.DataFrame, settings: FitSettings) -> FloatArray:
    return compute_of(rows, settings.n_convention, settings.c_convention)


def loss_figure(
    rows: pd.DataFrame, settings: FitSettings, styles: Mapping[str, ArmStyle], fitted: Sequence[str]
) -> str:
    """Loss of completed trials against compute, with law and band for each arm of ``fitted``."""
    with _style():
        figure, axes = _figure()
        axis = axes[0, 0]
        for arm, style in styles.items():
            own = rows[rows["arm"] == arm]
            if len(own):
                _draw_arm(axis, own, settings, style, _label(arm), with_law=arm in fitted)
        axis.set(xscale="log", yscale="log", xlabel="compute C, FLOPs", ylabel="test loss, nats a token")
        compute = _compute(rows, settings)
        _log_axis(axis.xaxis, compute.min(), compute.max())
        _plain_loss_ticks(axis)
        axis.legend()
        return svg(figure, "loss", "Test loss against compute for each arm, with fitted laws")


def _draw_arm(
    axis: "Axes", rows: pd.DataFrame, settings: FitSettings, style: ArmStyle, label: str, *, with_law: bool
) -> None:
    law = _arm_band(rows, settings) if with_law else None
    if law is not None:
        axis.plot(law.x, law.loss, color=style.colour)
        if law.low is not None and law.high is not None:
            axis.fill_between(law.x, law.low, law.high, color=style.colour, alpha=0.14, linewidth=0)
    axis.plot(
        _compute(rows, settings), rows["loss"], style.marker, color=style.colour, alpha=0.75, label=label
    )


def _plain_loss_ticks(axis: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _cell_key(row: RungDifference) -> tuple[str, ...]:
    return (row.rung, str(row.n_tokens), *row.setting.values())


def difference_figure(comparisons: Sequence[Comparison], styles: Mapping[str, ArmStyle]) -> str:
    """Difference to the reference in each cell and over all, with intervals; small dots are the pairs."""
    cells = {_cell_key(row): row for comparison in comparisons for row in comparison.by_rung}
    order = sorted(cells, key=lambda key: (cells[key].n_params, cells[key].n_tokens, key))
    place = {key: index for index, key in enumerate(order)}
    with _style():
        figure, axes = _figure(height=3.9)
        axis = axes[0, 0]
        axis.axhline(0, color=INK, linewidth=1)
        axis.axvline(len(order) - 0.5, color=FAINT, linewidth=0.8, linestyle=":")
        _draw_margin(axis, comparisons)
        width = min(0.16, 0.7 / max(len(comparisons), 1))
        for index, comparison in enumerate(comparisons):
            shift = (index - (len(comparisons) - 1) / 2) * width
            _draw_differences(axis, comparison, styles[comparison.arm], place, shift)
        axis.set_xticks(
            range(len(order) + 1), [*(_cell_name(cells[key]) for key in order), "all rungs\n(mean)"]
        )
        axis.set_ylabel("arm − reference, nats a token")
        axis.grid(visible=False, axis="x")
        axis.legend()
        return svg(figure, "difference", "Difference of the loss of each arm to the reference, by rung")


def _cell_name(row: RungDifference) -> str:
    return "\n".join([row.rung, f"N = {count(row.n_params)}", *row.setting.values()])


def _draw_margin(axis: "Axes", comparisons: Sequence[Comparison]) -> None:
    margin = comparisons[0].equivalence.get("margin") if comparisons else None
    if margin:
        label = f"equivalence margin ±{margin:g}"
        axis.axhspan(-margin, margin, color=FAINT, alpha=0.22, linewidth=0, label=label)


def _draw_differences(
    axis: "Axes",
    comparison: Comparison,
    style: ArmStyle,
    place: Mapping[tuple[str, ...], int],
    shift: float,
) -> None:
    points = [(place[_cell_key(row)], row.mean, row.interval) for row in comparison.by_rung]
    overall = comparison.loss_difference
    if overall.mean is not None:
        points.append((len(place), overall.mean, overall.interval))
    for row in comparison.by_rung:
        beside = np.full(len(row.differences), place[_cell_key(row)] + shift + 0.05)
        axis.plot(beside, row.differences, ".", color=style.colour, markersize=4, alpha=0.6)
    for x, _, interval in points:
        if interval is not None:
            axis.plot([x + shift] * 2, interval, color=style.colour, linewidth=1.6)
    axis.plot(
        [x + shift for x, _, _ in points],
        [mean for _, mean, _ in points],
        style.marker,
        color=style.colour,
        label=_label(comparison.arm),
    )


def tuning_figure(choices: Sequence[Mapping[str, Any]], styles: Mapping[str, ArmStyle]) -> str | None:
    """One panel a tuned rung: mean validation loss against learning rate, parabola, chosen rate (ringed).

    Diverged cells are crosses at the top; a censored choice is an open diamond. None without a tuned rung.
    """
    tuned = [choice for choice in choices if choice["grid"]]
    panels = list(dict.fromkeys(_panel_name(choice, tuned) for choice in tuned))
    if not panels:
        return None
    with _style():
        rows, columns = _panels(len(panels))
        figure, axes = _figure(rows, columns, height=3.1 * rows + 0.4)
        for axis, panel in zip(axes.flat, panels, strict=False):
            own = [choice for choice in tuned if _panel_name(choice, tuned) == panel]
            _draw_panel(axis, own, styles)
            axis.set_title(panel)
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_visible(False)
        axes[0, 0].set_ylabel("validation loss, nats a token")
        _legend_of_arms(figure, [choice["arm"] for choice in tuned], styles)
        return svg(figure, "tuning", "Validation loss against learning rate for each tuned rung and arm")


def _panel_name(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """Rung, and those settings in which the choices differ."""
    return ", ".join(filter(None, [str(choice["rung"]), setting_text(choice, choices)]))


def _draw_panel(axis: "Axes", choices: Sequence[Mapping[str, Any]], styles: Mapping[str, ArmStyle]) -> None:
    for choice in choices:
        _draw_bowl(axis, choice, styles[choice["arm"]])
    rates = [rate for choice in choices for rate in choice["grid"]]
    axis.set_xscale("log")
    axis.set_xticks(sorted(set(rates)), [f"{rate:g}" for rate in sorted(set(rates))], rotation=30, ha="right")
    axis.minorticks_off()
    axis.set_xlabel(str(choices[0]["field"]).replace("_", " "))


def _draw_bowl(axis: "Axes", choice: Mapping[str, Any], style: ArmStyle) -> None:
    rates = np.array(choice["grid"], dtype=float)
    losses = np.array([np.nan if loss is None else loss for loss in choice["losses"]], dtype=float)
    seen = np.isfinite(losses)
    axis.plot(rates[seen], losses[seen], style.marker, color=style.colour, alpha=0.85)
    axis.plot(
        rates[~seen],
        np.full(np.sum(~seen), 0.97),
        "x",
        color=style.colour,
        transform=axis.get_xaxis_transform(),
    )
    parabola = bowl(rates[seen], losses[seen])
    if parabola is None:
        return
    grid = np.geomspace(rates[seen].min(), rates[seen].max(), 60)
    axis.plot(grid, parabola(np.log(grid)), color=style.colour, linewidth=1.2)
    mark = "D" if choice["status"] == "censored" else "o"
    axis.plot(
        choice["chosen"],
        parabola(np.log(choice["chosen"])),
        mark,
        markersize=12,
        markerfacecolor="none",
        markeredgewidth=1.5,
        color=style.colour,
    )


def bowl(rates: FloatArray, losses: FloatArray) -> np.polynomial.Polynomial | None:
    """The parabola in ln rate through the lowest loss and its neighbours, which is what tuning reads."""
    order = np.argsort(rates)
    rates, losses = rates[order], losses[order]
    if len(rates) < 3:
        return None
    middle = int(np.clip(np.argmin(losses), 1, len(losses) - 2))
    three = slice(middle - 1, middle + 2)
    return np.polynomial.Polynomial.fit(np.log(rates[three]), losses[three], 2)


def _legend_of_arms(figure: "Figure", arms: Sequence[str], styles: Mapping[str, ArmStyle]) -> None:
    from matplotlib.lines import Line2D

    names = [arm for arm in styles if arm in set(arms)]
    handles = [Line2D([], [], color=styles[a].colour, marker=styles[a].marker) for a in names]
    figure.legend(handles, [_label(a) for a in names], loc="outside lower center", ncols=min(6, len(names)))


def curves_figure(curves: pd.DataFrame, rungs: Sequence[str], styles: Mapping[str, ArmStyle]) -> str:
    """Smoothed training loss against tokens, a panel a rung, one thin line a seed."""
    with _style():
        rows, columns = _panels(len(rungs))
        figure, axes = _figure(rows, columns, height=2.7 * rows + 0.4)
        for axis, rung in zip(axes.flat, rungs, strict=False):
            _draw_curves(axis, curves[curves["rung"] == rung], styles)
            axis.set_title(rung)
            axis.set_xlabel("tokens")
        for axis in list(axes.flat)[len(rungs) :]:
            axis.set_visible(False)
        for row in axes:
            row[0].set_ylabel("training loss")
        _legend_of_arms(figure, list(curves["arm"]), styles)
        return svg(figure, "curves", "Training loss against tokens for each rung and arm")


def _draw_curves(axis: "Axes", curves: pd.DataFrame, styles: Mapping[str, ArmStyle]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for (arm, _), own in curves.groupby(["arm", "trial_id"], sort=True):
        tokens, loss = smoothed(own)
        axis.plot(tokens, loss, color=styles[str(arm)].colour, linewidth=1, alpha=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def smoothed(curve: pd.DataFrame, n_points: int = 150) -> tuple[FloatArray, FloatArray]:
    """Tokens and a running mean of the loss over a fiftieth of the curve, thinned to ``n_points``."""
    ordered = curve.sort_values("tokens")
    window = max(1, len(ordered) // 50)
    loss = ordered["loss"].rolling(window, min_periods=1, center=True).mean().to_numpy(float)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(n_points, len(ordered))).astype(int))
    return ordered["tokens"].to_numpy(float)[kept], loss[kept]
