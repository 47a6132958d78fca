"""A sweep of somebody's script, followed at a terminal of 80 x 24 characters."""

import json
import re
import subprocess

import pytest

from foreign_sweep import SCRIPT, SMALL, ForeignSweep
from pseudo_terminal import LEAVES_SCREEN, PseudoTerminal
from recorded_sweep import member_of, record_sweep
from scalevec.orchestrator.sweep import controller as ownership
from scalevec.results.claims import acquire
from support import SCALEVEC

WATCH = [str(SCALEVEC), "status", "theirs.yaml", "--watch"]


@pytest.fixture
def sweep(tmp_path) -> ForeignSweep:
    return ForeignSweep(tmp_path, SMALL)


def variables(sweep: ForeignSweep) -> dict[str, str]:
    return {"SCALEVEC_CACHE_DIR": str(sweep.folder / "cache"), "XDG_CONFIG_HOME": str(sweep.folder)}


@pytest.mark.slow
def test_a_watch_started_before_the_run_outlives_every_gap_and_ends_with_the_sweep(sweep):
    watch = PseudoTerminal(WATCH, sweep.folder, variables(sweep) | {"NO_COLOR": "1"})
    with (sweep.folder / "lines").open("wb") as lines:
        options = {"cwd": sweep.folder, "env": watch.environment, "start_new_session": True}
        on_pipe = subprocess.Popen([*WATCH, "--json"], stdout=lines, **options)
    watch.shows("theirs: not begun")
    sweep.hold()
    run = sweep.start("-j", "1")
    watch.shows("step 3/5")
    watch.shows("3 for a free slot")
    sweep.release()
    assert (watch.wait(), on_pipe.wait(600), run.wait()) == (0, 0, 0)
    assert watch.output.rstrip().endswith("theirs: every trial has a result")
    assert LEAVES_SCREEN in watch.output
    assert "\x1b[3" not in watch.output, "a colour"
    assert all(len(frame) <= 24 and max(map(len, frame)) <= 80 for frame in watch.frames())
    objects = [json.loads(line) for line in (sweep.folder / "lines").read_text().splitlines()]
    assert (objects[0]["trials"], objects[-1]["states"]) == (0, {"completed": 4})


@pytest.mark.slow
def test_a_run_at_a_terminal_ends_with_its_state_and_why_a_trial_failed(sweep):
    failing = "if float(given['decay']): raise ValueError('no decay')\n"
    script = SCRIPT.replace("for step in", f"{failing}for step in")
    (sweep.folder / "train.py").write_text(script)
    command = [str(SCALEVEC), "run", "theirs.yaml", "--trust", "-j", "1"]
    run = PseudoTerminal(command, sweep.folder, variables(sweep))
    run.shows("ValueError: no decay")
    assert run.wait() == 1
    state = run.output.rpartition("theirs: comparison")[2]
    assert "2/2" in state
    assert "0/2  f2" in state
    done = subprocess.run(WATCH, cwd=sweep.folder, env=run.environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert re.search(r"failed +\w{8}  decay s seed", done.stdout)
    assert "ValueError: no decay" in done.stdout
    assert done.stdout.endswith("2 trials without a result. To go on: scalevec retry theirs\n")


def test_ctrl_c_leaves_the_screen_and_what_runs_alone(tmp_path):
    runs_dir = tmp_path / "runs"
    record_sweep(runs_dir, "small", [member_of("none", 0)])
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    store = {"SCALEVEC_STORE": f"sqlite:///{tmp_path}/index.sqlite"}
    watch = PseudoTerminal([str(SCALEVEC), "status", "small", "--watch"], tmp_path, store)
    watch.shows("1 for a free slot")
    watch.press("\x03")
    assert watch.wait() == 130
    assert watch.output.partition(LEAVES_SCREEN)[2].endswith("stopped watching; what runs goes on\r\n")
    claim.release()
