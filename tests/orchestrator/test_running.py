"""The order in which ``run`` does things."""

from types import SimpleNamespace

import pytest

from orchestrator.commands.running import Place, run_sweep
from orchestrator.errors import Lacking
from orchestrator.executors import EXECUTORS


class Silent(SimpleNamespace):
    """A cluster that does not answer."""

    sends_away = True

    @property
    def free_slots(self) -> int:
        raise Lacking("no cluster answers")

    def close(self) -> None:
        """Nothing is held."""


def test_an_executor_that_is_not_there_is_told_before_the_corpus_is_prepared(
    sweep_file, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Lacking, match="no sbatch on the PATH"):
        run_sweep(str(sweep_file), tmp_path / "runs", Place("slurm"))
    assert not (tmp_path / "runs").exists()


def test_a_cluster_that_does_not_answer_is_told_before_the_corpus_is_prepared(
    sweep_file, tmp_path, monkeypatch
):
    monkeypatch.setitem(EXECUTORS, "ray", lambda site: Silent(site=site))
    with pytest.raises(Lacking, match="no cluster answers"):
        run_sweep(str(sweep_file), tmp_path / "runs", Place("ray"))
    assert not (tmp_path / "runs").exists()
