"""``status --watch`` ends when every trial has a result or nobody runs the sweep, and says which."""

import json

import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look import screen as looking
from scalevec.orchestrator.commands.look.status import status
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.sweep import controller as ownership
from scalevec.results.claims import acquire


@pytest.fixture
def runs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    monkeypatch.setattr(looking, "WATCH_S", 0.01)
    return tmp_path / "runs"


def begin(runs_dir) -> None:
    record_sweep(runs_dir, "small", [member_of("none", seed) for seed in (0, 1)])


def watched(runs_dir, *steps, source=None, as_json=False) -> int:
    """Watch while ``steps`` happen one after the other, a look between them; return the number of looks."""
    looks, real = [], looking.sweep_statuses
    waiting = list(steps)

    def look(*arguments):
        statuses = real(*arguments)
        looks.append(statuses)
        assert len(looks) < 100, "it goes on"
        if waiting:
            waiting.pop(0)()
        return statuses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "sweep_statuses", look)
        assert status(source, runs_dir, watch=True, as_json=as_json) is Exit.DONE
    return len(looks)


def test_it_outlives_the_gap_between_two_local_trials(runs_dir, capsys):
    begin(runs_dir)
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    first, second = (directory_of(runs_dir, "none", seed) for seed in (0, 1))
    looks = watched(
        runs_dir,
        lambda: complete(first),
        lambda: None,
        lambda: complete(second),
        claim.release,
        source="small",
    )
    assert looks == 5
    assert capsys.readouterr().out.endswith("small: every trial has a result\n")


def test_started_before_the_run_it_waits(runs_dir, capsys):
    directory = directory_of(runs_dir, "none", 0)
    looks = watched(
        runs_dir,
        lambda: None,
        lambda: record_sweep(runs_dir, "small", []),
        lambda: record_sweep(runs_dir, "small", [member_of("none", 0)]) and complete(directory),
    )
    assert looks == 4
    assert "every trial has a result" in capsys.readouterr().out


def test_where_nobody_runs_the_sweep_any_more_it_ends_and_says_so(runs_dir, capsys):
    begin(runs_dir)
    complete(directory_of(runs_dir, "none", 0))
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    assert watched(runs_dir, lambda: None, claim.release) == 3
    assert capsys.readouterr().out.endswith(
        "small: nobody runs it any more; 1 trial without a result. "
        f"To go on: scalevec run small --runs {runs_dir}\n"
    )


def test_as_json_each_change_is_a_line(runs_dir, capsys):
    begin(runs_dir)
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    watched(
        runs_dir,
        lambda: None,
        lambda: complete(directory_of(runs_dir, "none", 0)),
        claim.release,
        source="small",
        as_json=True,
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [{"pending": 2}, {"completed": 1, "pending": 1}, {"completed": 1, "pending": 1}]
    assert [line["states"] for line in lines] == expected
    assert [line["owned"] for line in lines] == [True, True, False]
