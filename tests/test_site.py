"""The site of the documentation, opened from its files in a real Chromium."""

import re
import subprocess
import sys

import pytest

from browser import chromium
from cluster.needs import require_package
from support import CHECKOUT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    require_package("mkdocs", "pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    subprocess.run(command, cwd=CHECKOUT, check=True)
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|link rel="(?:stylesheet|icon)")[^>]*(?:src|href)="(https?:[^"]*)"')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [link for page in pages for link in loaded.findall(page.read_text(encoding="utf-8"))] == []


def test_a_reader_without_a_server_searches_and_finds(site):
    with chromium() as browser:
        page = browser.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        page.goto((site / "reference" / "sweep-file.html").as_uri())
        page.get_by_role("textbox", name="Search").click()
        page.keyboard.type("trunk")
        page.locator(".md-search-result a", has_text="Token budgets that share a trunk").first.click()
        page.wait_for_url("**/trunks.html*")
        assert wrong == []


def test_every_field_of_the_sweep_file_is_there_with_a_sentence_and_an_example(site):
    text = (site / "reference" / "sweep-file.html").read_text(encoding="utf-8")
    row = r"<tr>\s*<td><code>([\w.]+)</code></td>\s*<td>(?:.+?)</td>\s*<td><code>(?:.+?)</code></td>"
    fields = re.findall(row, text)
    assert {"learning_rate", "tokenizer", "heterogeneous_maps", "micro_batch", "predict"} <= set(fields)
    assert len(fields) == text.count("<tr>") - text.count("<thead>")
