"""The report in a real Chromium: wide and narrow, light, dark and printed, by mouse and by keyboard alone."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from browser import chromium
from scalevec.analysis import write_report
from scalevec.analysis.report import html

pytestmark = pytest.mark.slow

SCRIPT = '<script>document.title = "taken"</script>'
LONG = "an-arm-with-a-name-of-sixty-characters-which-is-what-people-w"[:60]
SCREENS = [(1400, "light"), (400, "light"), (1400, "dark"), (400, "dark")]
CASES = ("odd names", "eighteen arms", "one rung", "no result", "one arm", "no pairs")


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


def unpaired(table: pd.DataFrame) -> pd.DataFrame:
    """The table with seeds of their own for all arms but the baseline."""
    return table.assign(seed=table["seed"].where(table["arm"] == "baseline", table["seed"] + 10))


@pytest.fixture(scope="module")
def pages(tmp_path_factory, sweep, diverge, choice) -> dict[str, Path]:
    """A report of each case; only that of odd names has its figures, which take most of the time."""
    folder = tmp_path_factory.mktemp("reports")
    odd = sweep({"baseline": 0.0, SCRIPT: -0.03, LONG: 0.02}).assign(learning_rate=0.02, wall_s=60.0)
    odd = diverge(odd.assign(trial_id=[f"{number:064x}" for number in range(len(odd))]), LONG, "55k", 1)
    rungs = {"25k": 25_088, "55k": 55_296}
    many = sweep({"baseline": 0.0} | {f"arm-{n}": -0.01 for n in range(17)}, rungs=rungs)
    single = sweep(rungs={"25k": 25_088}).assign(learning_rate=0.02)
    none = single.assign(status="pending", loss=np.nan)
    alone = sweep({"baseline": 0.0})
    tables = dict(zip(CASES, (odd, many, single, none, alone, unpaired(sweep())), strict=True))
    facts = {"host": "h", "sweep file": f"name: odd  # {LONG * 5}\nseeds: [0]"}
    choices = [choice("baseline"), choice(SCRIPT, losses=[None, 3.9, 3.8], status="censored")]
    with pytest.MonkeyPatch.context() as patch:
        for number, (case, table) in enumerate(tables.items()):
            if number:
                patch.setattr(html, "page_figures", lambda *_: {})
            common = {"name": case, "reference": "baseline", "bootstrap": 100, "facts": facts}
            write_report(table, folder / f"{number}.html", choices=[] if number else choices, **common)
    return {case: folder / f"{number}.html" for number, case in enumerate(CASES)}


@contextmanager
def opened(browser, path: Path, width: int = 1400, **options) -> Iterator:
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    try:
        page = context.new_page()
        page.told, page.loaded = [], []
        page.on("console", lambda message: page.told.append(message.text))
        page.on("pageerror", lambda error: page.told.append(str(error)))
        page.on("request", lambda request: page.loaded.append(request.url))
        page.goto(path.as_uri())
        yield page
    finally:
        context.close()


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_loaded_or_complained_of_no_screen_too_narrow_and_axe_finds_nothing(browser, pages, case):
    from axe_playwright_python.sync_playwright import Axe

    for width, scheme in SCREENS:
        with opened(browser, pages[case], width, color_scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.title().startswith(f"{case}: ")
            violations = [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3])
                     for rule in Axe().run(page).response["violations"]]  # fmt: skip
            assert violations == []
            page.emulate_media(media="print")
            assert (page.told, page.loaded) == ([], [pages[case].as_uri()])


def test_a_page_prints_dark_on_white_whatever_the_screen(browser, pages):
    with opened(browser, pages["odd names"], color_scheme="dark") as page:
        paper = "getComputedStyle(document.body).backgroundColor"
        on_screen = page.evaluate(paper)
        page.emulate_media(media="print", color_scheme="dark")
        assert (on_screen, page.evaluate(paper)) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
        assert not page.locator("nav").is_visible()


def column(page, region: str, number: int) -> list[str]:
    rows = page.locator(f"[aria-label={region}] tbody tr:not([hidden]) td:nth-child({number})")
    return rows.all_text_contents()


def test_a_click_sorts_by_a_column_and_another_one_turns_it_round_with_blanks_last(browser, pages):
    with opened(browser, pages["odd names"]) as page:
        page.locator("#trials + details > summary").click()
        header = page.locator("[aria-label=Trials] th", has_text="loss")
        at = header.evaluate("cell => cell.cellIndex") + 1
        for order in ("ascending", "descending"):
            header.get_by_role("button").click()
            assert header.get_attribute("aria-sort") == order
            shown = column(page, "Trials", at)
            losses = [float(text) for text in shown if text]
            assert losses == sorted(losses, reverse=order == "descending")
            assert shown[-1] == ""


def test_a_filter_leaves_the_rows_with_all_of_its_words_and_they_are_copied_with_all_digits(browser, pages):
    with opened(browser, pages["odd names"], permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("#trials + details > summary").click()
        page.get_by_label("Filter Trials").fill("55k baseline")
        assert page.get_by_text("2 of 24 rows").is_visible()
        assert column(page, "Trials", 4) == ["55k", "55k"]
        page.locator("#trials + details .tools button").first.click()
        page.get_by_text("Copied").wait_for()
        rows = list(csv.DictReader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
        expected = [("baseline", "55k", "0"), ("baseline", "55k", "1")]
        assert [(row["arm"], row["rung"], row["seed"]) for row in rows] == expected
        assert all(len(row["loss"]) > 12 and len(row["trial_id"]) == 64 for row in rows)


def test_tab_reaches_all_that_can_be_used_in_the_order_of_the_page(browser, pages):
    with opened(browser, pages["odd names"]) as page:
        number = page.evaluate("""() => {
            const used = "a[href], button, input, summary, [tabindex]";
            const shown = [...document.querySelectorAll(used)].filter(element => element.checkVisibility());
            shown.forEach((element, number) => { element.dataset.number = number; });
            return shown.length;
        }""")
        reached = []
        for _ in range(number):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.dataset.number"))
        assert reached == [str(n) for n in range(number)]


def test_arms_of_the_loss_figure_are_hidden_and_its_axes_made_linear(browser, pages):
    with opened(browser, pages["odd names"]) as page:
        figure = page.locator("figure:has(.linear)")
        box = figure.get_by_role("checkbox").nth(1)
        shown = figure.locator(".drawing:visible [data-arm='1']:visible").count()
        assert shown > 0
        box.uncheck()
        assert figure.locator("[data-arm='1']:visible").count() == 0
        assert figure.locator(".drawing:visible [data-arm='0']:visible").count() > 0
        figure.get_by_role("button", name="Linear axes").click()
        assert figure.locator(".drawing:visible").get_attribute("aria-label").endswith("on linear axes")
        box.check()
        assert figure.locator(".drawing:visible [data-arm='1']:visible").count() == shown
        assert page.told == []


def test_arrow_keys_step_through_the_points_of_a_figure(browser, pages):
    with opened(browser, pages["odd names"]) as page:
        page.locator("[aria-label='Figure 2']").focus()
        named = []
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
            named.append(page.locator("[aria-label='Figure 2'] + output").text_content())
        assert named[0] != named[1]
        assert named[0] == named[2]
        assert "seed 1" in named[1]
