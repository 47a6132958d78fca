"""The pictures of the README: ``make pictures`` writes them to docs/figures.

The sweep of docs/tutorial.md is run, and watched when three quarters of its trials are done. The report
is that of the kept quickstart.
"""

import io
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import screenshots
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from scalevec.orchestrator.commands.look.screen import screen
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.results.claims import ClaimObserver

CHECKOUT = Path(__file__).resolve().parents[1]
FIGURES = CHECKOUT / "docs" / "figures"
WIDTH = 100
"""Columns of the terminal that is drawn."""


def main() -> None:
    """Write both pictures."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (FIGURES / "watch.svg").write_text(_terminal(_nearly_done(folder)), encoding="utf-8")
        [report, *_] = screenshots.reports(folder)
        _photograph(report, FIGURES / "report.png")


def _nearly_done(folder: Path) -> dict[str, Any]:
    """Run the tutorial's sweep in ``folder`` until three quarters of its trials are done; its state then."""
    page = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    [sweep] = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (folder / "mine.yaml").write_text(sweep, encoding="utf-8")
    (folder / "texts").symlink_to(CHECKOUT / "docs")
    scalevec = Path(sysconfig.get_path("scripts")) / "scalevec"
    run = subprocess.Popen([scalevec, "run", "mine.yaml"], cwd=folder, stderr=subprocess.DEVNULL)
    observer = ClaimObserver()
    try:
        while run.poll() is None:
            time.sleep(1)
            for status in sweep_statuses(None, folder / "runs", observer):
                losses = [trial["loss"] for trial in status["running"]]
                is_seen = 4 * status["states"].get("completed", 0) >= 3 * status["trials"]
                if status["stage"] == "comparison" and is_seen and losses and all(losses):
                    return status
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()
    sys.exit("the sweep ended before it was seen")


def _terminal(status: dict[str, Any]) -> str:
    """What ``scalevec status --watch`` shows of ``status``, as a picture without fonts from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(screen([status], WIDTH))
    without_fonts = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(
        title="scalevec status --watch", theme=DIMMED_MONOKAI, code_format=without_fonts, unique_id="watch"
    )


def _photograph(report: Path, picture: Path) -> None:
    """Write the first screen of ``report``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = screenshots.started(playwright)
        page = browser.new_page(viewport={"width": 1200, "height": 885}, color_scheme="light")
        page.goto(report.as_uri())
        page.screenshot(path=picture)


if __name__ == "__main__":
    main()
