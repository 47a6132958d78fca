"""A worker runs the plugins that it was sent with, and no trial that needs others."""

import sys

import pytest

from plugin_package import ARMS, SWEEP, write_plugin
from scalevec import sweeps
from scalevec.orchestrator.worker import preflight as of_worker
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.preflight import load_plugins, problems_here
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from scalevec.sweeps.plugins.locate import find


@pytest.fixture
def trial(tmp_path, own_registries):
    """A trial that needs the plugin in the folder ``beside``."""
    write_plugin(tmp_path / "beside")
    text = SWEEP.format(text=tmp_path)
    sweep = sweeps.loads(text, "s.yaml", tmp_path / "beside", look_for_files=False)
    cells = expand(sweep, CorpusFacts("ab" * 32, 257, 10**6))
    return next(cell.template for cell in cells if cell.arm == "signs")


@pytest.fixture
def sent(tmp_path, monkeypatch, own_registries):
    """Puts a plugin where the snapshot of this process would have it."""

    def put(arms: str) -> None:
        folder = tmp_path / "sent"
        write_plugin(folder, arms)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(of_worker, "sent_plugins", lambda: [find("mylab.arms", folder)])
        monkeypatch.setattr(of_worker, "sent_folder", lambda: folder)

    return put


def test_what_was_sent_is_imported(trial, sent):
    sent(ARMS)
    load_plugins(trial)
    assert "mylab.arms" in sys.modules


def test_a_trial_that_needs_other_content_is_refused_with_both(trial, sent):
    sent(ARMS.replace("0.9", "0.8"))
    with pytest.raises(DefiniteError, match=r"needs the plugin mylab\.arms .* sent with: mylab"):
        load_plugins(trial)
    assert "mylab.arms" not in sys.modules


def test_outside_of_a_snapshot_there_is_no_plugin(trial):
    with pytest.raises(DefiniteError, match="sent with: none"):
        load_plugins(trial)


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "1 / 0"])
def test_whatever_a_plugin_raises_at_import_is_said_with_its_line(sent, ending):
    sent(f"{ARMS}\n{ending}\n")
    [problem] = problems_here()
    assert problem.startswith("mylab.arms: cannot be imported: ")
    assert f"(arms.py, line {len(ARMS.splitlines()) + 2})" in problem


def test_a_module_that_comes_from_elsewhere_is_refused(sent, tmp_path, monkeypatch):
    sent(ARMS)
    write_plugin(tmp_path / "before")
    monkeypatch.syspath_prepend(tmp_path / "before")
    [problem] = problems_here()
    assert "not from what was sent" in problem
