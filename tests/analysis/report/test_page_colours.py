"""The colours of the page, as people see them who lack one kind of cone.

Simulation: Machado, Oliveira & Fernandes 2009, severity 1, on linear sRGB. Contrast: WCAG 2, 1.4.3.
"""

import itertools
import re

import numpy as np
import pytest

from scalevec.analysis.figures.style import OKABE_ITO, ON_DARK
from scalevec.analysis.report.html import TEMPLATES

SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
WHITE = np.array([0.95047, 1.0, 1.08883])
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
TOLD_APART = 12.0
"""Distance in CIELAB: some five times what an eye just notices."""


def themes() -> dict[str, dict[str, str]]:
    """The colours of the page by name, light and dark."""
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in css.split("@media", 2)[:2])
    arms = [
        {f"colour-{number}": colour for number, colour in enumerate(colours, start=1)}
        for colours in (OKABE_ITO, ON_DARK)
    ]
    return {"light": arms[0] | light, "dark": arms[1] | light | dark}


def seen(colour: str, sight: str) -> np.ndarray:
    """The linear sRGB of ``colour`` as it is seen."""
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return np.clip(SIGHT[sight] @ linear, 0, 1)


def lab(linear: np.ndarray) -> np.ndarray:
    share = TO_XYZ @ linear / WHITE
    f = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(first: np.ndarray, second: np.ndarray) -> float:
    dark, light = sorted(float(TO_XYZ[1] @ colour) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_of_arms_are_told_apart(theme, sight):
    colours = themes()[theme]
    arms = [colours["ink"], *(colours[f"colour-{number}"] for number in range(1, len(OKABE_ITO) + 1))]
    shown = [lab(seen(colour, sight)) for colour in arms]
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(shown, 2)]
    assert min(distances) > TOLD_APART


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_text_and_verdicts_stand_out_from_their_paper(theme, sight):
    colours = themes()[theme]
    words = ("ink", "soft", "better", "worse", "equivalent", "undecided", "incomplete", "invalid")
    for paper in ("paper", "panel"):
        ratios = [contrast(seen(colours[word], sight), seen(colours[paper], sight)) for word in words]
        assert min(ratios) >= 4.5
