"""Pictures of reports in a real Chromium, to be looked at: ``make screenshots`` writes build/screenshots.

Each kept sweep is shown wide and on a phone, light, dark and on paper (PDF), in pieces that can be read.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec import analysis, sweeps

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "reference"
FOLDER = CHECKOUT / "build" / "screenshots"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# As root it has no sandbox; the other flags keep it from looking for updates.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
SCREENS = {
    "wide": (1400, "light"),
    "dark": (1400, "dark"),
    "phone": (400, "light"),
    "phone-dark": (400, "dark"),
}
PIECE = 3000
"""Height of a picture in pixels."""


def program() -> str | None:
    """Where this machine has a Chromium."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def started(playwright: "Playwright") -> "Browser":
    """Start the Chromium of this machine."""
    return playwright.chromium.launch(executable_path=program(), args=list(FLAGS))


def reports(folder: Path) -> list[Path]:
    """Write the reports of the kept sweeps to ``folder``."""
    paths = []
    for name in ("quickstart", "small/main", "small/scaling"):
        kept, path = KEPT / name, folder / f"{Path(name).name}.html"
        if not (kept / "results.csv").is_file():  # a small sweep that has not been run yet
            continue
        source = Path(sweeps.__file__).parent / f"{name}.yaml"
        record = kept / "tuning.json"
        choices = json.loads(record.read_text(encoding="utf-8"))["choices"] if record.is_file() else ()
        analysis.write_report(
            analysis.read_table(kept / "results.csv"),
            path,
            name=path.stem,
            reference="baseline",
            margin=0.005,
            choices=choices,
            facts={"source": name, "sweep file": source.read_text(encoding="utf-8")},
        )
        paths.append(path)
    return paths


def pieces(page: "Page", stem: Path, width: int) -> None:
    """Write the open page to STEM-1.png and so on."""
    height = page.evaluate("document.documentElement.scrollHeight")
    for number, top in enumerate(range(0, height, PIECE), start=1):
        clip = {"x": 0, "y": top, "width": width, "height": min(PIECE, height - top)}
        page.screenshot(path=f"{stem}-{number}.png", full_page=True, clip=clip)


def main() -> None:
    """Write reports and pictures, older ones are removed."""
    from playwright.sync_api import sync_playwright

    if program() is None:
        sys.exit(f"none of {', '.join(PROGRAMS)} is installed")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with sync_playwright() as playwright:
        browser = started(playwright)
        for report in reports(FOLDER):
            for name, (width, scheme) in SCREENS.items():
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
                page = context.new_page()
                page.goto(report.as_uri())
                pieces(page, report.with_name(f"{report.stem}-{name}"), width)
                if name == "dark":
                    page.pdf(path=report.with_suffix(".pdf"), format="A4", print_background=True)
                context.close()
    print(f"{len(list(FOLDER.iterdir()))} files in {FOLDER.relative_to(CHECKOUT)}")


if __name__ == "__main__":
    main()
