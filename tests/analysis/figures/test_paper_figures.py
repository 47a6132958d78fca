"""Figures as files for a paper: which there are, what they refuse, that their bytes do not change."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from scalevec import analysis
from scalevec.analysis import FIGURES, DataError, write_figures
from scalevec.analysis.figures import figure_input, panels
from scalevec.analysis.figures.files import write_atomically
from support import umask

ARMS = {"baseline": 0.0, "none": 0.04, "unified": -0.03}


@pytest.fixture(scope="module")
def results(sweep) -> pd.DataFrame:
    """Not to be changed."""
    rows = sweep(ARMS)
    return rows.assign(trial_id=rows["arm"] + rows["rung"] + rows["seed"].astype(str))


def statistics() -> pd.DataFrame:
    names = ("mean", "deviation", "near_zero")
    keys = [f"sv/{kind}/{name}" for kind in ("query_input", "final") for name in names]
    rows = [
        {"trial_id": f"{arm}150k0", "arm": arm, "rung": "150k", "seed": 0, "tokens": tokens, "key": key}
        for arm in ("baseline", "unified")
        for tokens in (1024, 2048, 4096)
        for key in (*keys, "theory/sharpness", "theory/sharpness_residual")
    ]
    return pd.DataFrame(rows).assign(value=1.0, low=0.9, high=1.2)


@pytest.fixture(scope="module")
def everything(choice, curves) -> dict[str, object]:
    return {"choices": [choice(arm) for arm in ARMS], "curves": curves, "statistics": statistics()}


def draw(results: pd.DataFrame, folder, **options):
    cheap = {"reference": "baseline", "bootstrap": 20, "law": "power", "margin": 0.005}
    return write_figures(results, folder, **cheap | options)


@pytest.fixture(scope="module")
def all_drawn(results, everything, tmp_path_factory):
    asked = {"formats": ["svg"], "order": ["none", "unified"]}
    return draw(results, tmp_path_factory.mktemp("figures"), **everything | asked)


def drawing_of(name: str, all_drawn) -> Path:
    return next(path for path in all_drawn.paths if path.stem == name)


def test_every_figure_that_needs_no_law_in_n_and_d_can_be_drawn(all_drawn):
    assert all_drawn.left_out.keys() == {"isoflop", "optimal", "surface"}
    expected = [name for name in FIGURES if name not in all_drawn.left_out]
    assert [path.stem for path in all_drawn.paths] == expected


SCRIPT = """
import sys, pandas as pd
from scalevec.analysis import write_figures
rows = pd.read_csv(sys.argv[1])
write_figures(rows, sys.argv[2], reference="baseline", only=["differences"], bootstrap=0)
"""


@pytest.mark.slow
def test_another_process_with_another_hash_seed_writes_the_same_bytes(results, tmp_path):
    results.to_csv(tmp_path / "rows.csv", index=False)
    rows, asked = pd.read_csv(tmp_path / "rows.csv"), {"reference": "baseline", "only": ["differences"]}
    here = write_figures(rows, tmp_path / "here", bootstrap=0, **asked)
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "rows.csv"), str(tmp_path / "there")]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)})
    assert [path.name for path in here.paths] == ["differences.pdf", "differences.svg", "differences.png"]
    for path in here.paths:
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


def test_a_file_holds_no_date_and_no_version(results, tmp_path):
    draw(results, tmp_path, only=["differences"])
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for word in (b"CreationDate", b"ModDate", b"dc:date", b"Matplotlib v", b"Software"):
        assert word not in content


def test_a_drawing_has_two_decimals_and_ids_that_no_coordinate_decides(all_drawn):
    path = drawing_of("loss", all_drawn)
    tags = re.sub(r"scale\([^)]*\)|<!--.*?-->|(?<=>)[^<]+", "", path.read_text(encoding="utf-8"))
    assert not re.search(r"\.\d{3}", tags)
    assert set(re.findall(r' id="([^"]+)"', tags)) == set(re.findall(r"#(loss-\d+)", tags))


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_name_with_control_characters_leaves_a_drawing_well_formed(results, tmp_path):
    rows = results.replace({"arm": {"unified": "uni\x01fied\x1b"}})
    draw(rows, tmp_path, formats=["svg"], only=["loss"])
    assert ElementTree.parse(tmp_path / "loss.svg").getroot().tag.endswith("svg")


def test_files_of_an_incomplete_comparison_are_stamped(sweep, tmp_path):
    rows = sweep()
    rows.loc[rows.index[-1], ["status", "loss"]] = "pending", None
    for path in draw(rows, tmp_path, formats=["svg"], only=["loss", "differences"]).paths:
        assert "Interim: unified 7 of 8 pairs" in " ".join(texts_of(path))
    for path in draw(sweep(), tmp_path, formats=["svg"], only=["loss"]).paths:
        assert "Interim" not in path.read_text()


def test_without_pairs_their_figures_say_what_one_agrees_in_and_compare_no_arms(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(figure_input, "pairs_or_laws", None)
    table = sweep().assign(
        rung=lambda rows: rows["rung"] + (rows["arm"] != "baseline").map({True: " wider", False: ""})
    )
    drawn = draw(table, tmp_path, formats=["svg"])
    assert drawn.left_out["differences"].startswith("no arm has a trial in common with 'baseline': a pair")
    assert "loss" in {path.stem for path in drawn.paths}
    nothing = "nothing was tuned, or the source is a table, which keeps no record of tuning"
    assert drawn.left_out["tuning"] == nothing


def test_a_figure_that_was_asked_for_and_cannot_be_drawn_is_refused_and_nothing_written(sweep, tmp_path):
    message = "cannot be drawn from this source: 'curves': training curves are kept"
    with pytest.raises(DataError, match=message):
        draw(sweep(ARMS), tmp_path / "new", only=["loss", "curves"])
    assert not (tmp_path / "new").exists()


def test_trials_that_have_not_finished_make_no_figure(sweep, tmp_path):
    with pytest.raises(DataError, match="'loss': no trial is completed"):
        draw(sweep(ARMS).assign(status="pending", loss=np.nan), tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["los"]}, "figure is 'los'; nearest: 'loss'"),
        ({"formats": ["gif"]}, "format is 'gif'; allowed: one or more of pdf, svg, png"),
        ({"formats": []}, "format is empty"),
        ({"reference": "basline"}, "reference is 'basline'"),
    ],
)
def test_bad_options_are_refused(sweep, tmp_path, options, message: str):
    with pytest.raises(DataError, match=message):
        draw(sweep(ARMS), tmp_path, **options)


def test_another_column_is_not_called_the_test_loss(sweep, tmp_path):
    rows = sweep(ARMS).assign(loss_validation=lambda table: table["loss"] + 0.01)
    (path,) = draw(rows, tmp_path, formats=["svg"], only=["loss"], y="loss_validation").paths
    assert ">loss_validation</text>" in path.read_text(encoding="utf-8")


def test_more_settings_than_fit_on_a_page_go_onto_further_pages(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "MOST_INCHES", 4.0)  # room for one row
    rows = sweep({"baseline": 0.0, "none": 0.04}, seeds=(0,))
    names = rows["arm"] + rows["rung"] + rows["seed"].astype(str)
    many = pd.concat([rows.assign(optimizer=f"o{n}", trial_id=f"{n}" + names) for n in range(4)])
    recorded = many[["trial_id", "arm", "rung", "seed"]].assign(
        tokens=100, key="sv/final/mean", value=1.0, low=1.0, high=1.0
    )
    drawn = draw(many, tmp_path, formats=["svg"], only=["multipliers", "statistics"], statistics=recorded)
    assert {path.stem for path in drawn.paths} == {f"multipliers-{n}" for n in (1, 2)} | {"statistics"}
    pages = [path.read_text(encoding="utf-8") for path in drawn.paths[:2]]
    assert [sum(f">o{n}</text>" in page for n in range(4)) for page in pages] == [2, 2]


def test_a_figure_is_drawn_on_axes_of_ones_own_in_ones_own_colours(results, everything):
    axes = Figure().subplots(1, 2)
    asked = {"reference": "baseline", "palette": {"none": "#123456"}, "bootstrap": 0, "law": "power"}
    caption = analysis.draw(axes, results, "differences", **asked)
    assert caption
    colours = {to_hex(artist.get_color()) for artist in axes[0].lines}
    assert "#123456" in colours


def test_arms_are_called_ordered_and_coloured_as_one_asks(results, tmp_path):
    draw(
        results,
        tmp_path,
        formats=["svg"],
        only=["differences"],
        rename={"unified": "Unified (ours)", "none": "unified"},
        order=["unified"],
        palette={"unified": "#D55E00"},
        style=sheet(tmp_path, "font.size: 9"),
    )
    text = (tmp_path / "differences.svg").read_text(encoding="utf-8")
    assert text.index(">Unified (ours)</text>") < text.index(">unified</text>")
    assert ">none</text>" not in text
    assert {"#d55e00", "#0072b2"} <= set(re.findall("#[0-9a-f]{6}", text))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rename": {"unfied": "x"}}, "arm to be renamed is 'unfied'; nearest: 'unified'"),
        ({"order": ["unfied"]}, "arm to be ordered is 'unfied'"),
        ({"palette": {"unified": "reddish"}}, "colour of unified is 'reddish'; a name or #RRGGBB"),
        ({"style": "nowhere.mplstyle"}, "style nowhere.mplstyle is no style sheet of matplotlib"),
    ],
)
def test_names_colours_and_styles_that_there_are_not_are_refused(changes, message, results, tmp_path):
    with pytest.raises(DataError, match=re.escape(message)):
        draw(results, tmp_path, **changes)


def texts_of(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"))


def sheet(folder: Path, text: str) -> Path:
    (folder / "mine.mplstyle").write_text(text)
    return folder / "mine.mplstyle"


def test_too_few_axes_are_refused_with_the_number_of_panels(results, everything):
    with pytest.raises(DataError, match=r"the figure has \d panels, and 1 axes are given"):
        analysis.draw(Figure().subplots(), results, "statistics", reference="baseline", **everything)


@pytest.mark.parametrize(("mask", "mode"), [(0o002, 0o664), (0o077, 0o600)])
def test_a_file_is_for_whom_the_umask_says(tmp_path, mask, mode):
    with umask(mask):
        write_atomically(tmp_path / "a.svg", b"content")
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == mode


def test_what_cannot_be_put_in_place_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "a.svg", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_a_full_disk_is_told_with_the_file_that_had_no_room(small_device):
    with pytest.raises(OSError, match=r"No space left on device: .*/a\.svg"):
        write_atomically(small_device / "a.svg", bytes(100_000))
    assert list(small_device.iterdir()) == []


def test_settings_of_matplotlib_in_the_working_directory_change_no_byte(tmp_path, sweep, monkeypatch):
    import matplotlib

    table = sweep({"baseline": 0.0, "none": 0.1})

    def drawn(folder: str) -> dict[str, bytes]:
        options = {"formats": ["svg"], "only": ["loss"], "bootstrap": 20}
        write_figures(table, tmp_path / folder, reference="baseline", **options)
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    usual = drawn("usual")
    odd = {"text.usetex": True, "lines.linewidth": 9, "svg.fonttype": "none"}
    odd |= {"axes.formatter.use_locale": True}
    with matplotlib.rc_context(odd):
        assert drawn("odd") == usual
