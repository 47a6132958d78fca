"""--store and SCALEVEC_STORE: where the index is, and one message where it cannot be used."""

import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.sources import sources
from scalevec.results.index.database import StoreUnavailableError
from scalevec.results.index.store import ResultsIndex
from support import assert_refused

UNREACHABLE = "postgresql://someone:top-secret@127.0.0.1:1/name"


@pytest.fixture
def runs_dir(tmp_path):
    record_sweep(tmp_path / "runs", "small", [member_of("none", 0)])
    complete(directory_of(tmp_path / "runs", "none", 0))
    return tmp_path / "runs"


def test_the_option_names_the_store(scalevec, runs_dir, tmp_path):
    url = f"sqlite:///{tmp_path}/mine.sqlite"
    assert scalevec("--store", url, "status").returncode == 0
    assert not (tmp_path / "cache").exists()
    with ResultsIndex(url) as index:
        assert len(index.rows(runs_dir)) == 1


@pytest.mark.parametrize("command", [["status"], ["results", "small"], ["store", "rebuild"]])
def test_a_store_that_cannot_be_reached_is_a_lack_of_the_machine(scalevec, runs_dir, command):
    done = scalevec("--store", UNREACHABLE, *command)
    assert_refused(done, 3, "scalevec: store postgresql+psycopg://someone:***@127.0.0.1:1/name: ")
    assert "top-secret" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("url", "message"),
    [("nonsense", "cannot be read"), ("oracle://someone:top-secret@host/name", "'oracle' is not supported")],
)
def test_a_malformed_store_is_refused(scalevec, runs_dir, url, message):
    done = scalevec("--store", url, "status")
    assert_refused(done, 2, message)
    assert "top-secret" not in done.stderr


def test_a_store_that_is_named_is_tried_before_anything_is_spent(runs_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("SCALEVEC_STORE", UNREACHABLE)
    with pytest.raises(StoreUnavailableError):
        sources.check_named_store(runs_dir)
    monkeypatch.delenv("SCALEVEC_STORE")
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", "/proc/nothing/can/be/made/here")
    sources.check_named_store(runs_dir)


def test_states_are_read_from_the_directories_where_the_store_is_away(runs_dir, monkeypatch, capsys):
    monkeypatch.setenv("SCALEVEC_STORE", UNREACHABLE)
    name = member_of("none", 0)["trial_id"]
    assert sources.states_of(runs_dir, [name]) == {name: "completed"}
    warning = capsys.readouterr().err
    assert "the run directories have everything" in warning
    assert "top-secret" not in warning


def test_what_cannot_be_read_without_the_store_is_told_too(runs_dir, monkeypatch, capsys):
    monkeypatch.delenv("SCALEVEC_STORE", raising=False)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", "/proc/nothing/can/be/made/here")
    directory_of(runs_dir, "none", 0).result_path.write_text("{")
    name = member_of("none", 0)["trial_id"]
    assert sources.states_of(runs_dir, [name]) == {name: sources.UNREADABLE}
    assert "result.json: is not whole JSON" in capsys.readouterr().err


@pytest.fixture
def sweep_of_nobody(as_nobody, sweep_file):
    """The small sweep on a text that another user may read."""
    texts = as_nobody.folder / "texts"
    texts.mkdir(mode=0o755)
    (texts / "text.txt").write_text("\n".join(f"line {number} of a text" for number in range(5000)))
    text = sweep_file.read_text()
    start = text.index('files: ["') + len('files: ["')
    path = as_nobody.folder / "small.yaml"
    path.write_text(text[:start] + f"{texts}/*.txt" + text[text.index('"]', start) :])
    return path


def test_runs_that_may_not_be_written_are_a_lack_of_the_machine(as_nobody, sweep_of_nobody):
    runs_dir = as_nobody.folder / "runs"
    runs_dir.mkdir(mode=0o755)
    assert_refused(as_nobody.scalevec("run", sweep_of_nobody), 3, "Permission denied", "runs")
    assert not list(runs_dir.iterdir())


def test_debug_shows_the_traceback_and_not_even_that_shows_the_password(scalevec, runs_dir):
    done = scalevec("--debug", "--store", UNREACHABLE, "status")
    assert "Traceback" in done.stderr
    assert "top-secret" not in done.stderr + done.stdout
