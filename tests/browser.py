"""A real Chromium for tests of pages; where there is none they are skipped, and in CI they fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import screenshots

from cluster.needs import missing, require_package


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the Chromium of this machine; playwright's browser."""
    require_package("playwright", "pip install -e '.[dev]'")
    if screenshots.program() is None:
        missing("chromium", "apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = screenshots.started(playwright)
        yield browser
        browser.close()
