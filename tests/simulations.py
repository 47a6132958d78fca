"""A small simulated sweep, run in this process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from faulty_simulation import ATTEMPT_FAULTS, Faults, FaultySimulation
from recorded_sweep import directories_in
from scalevec import sweeps
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.scheduling.watched_jobs import Outcome
from scalevec.orchestrator.sweep.sweep_run import StageIncompleteError, SweepRun
from scalevec.results.run_directory import RunDirectory

SWEEP: dict[str, Any] = {
    "name": "simulated",
    "corpus": {"tokenizer": {"bpe": 32000}, "sequence_length": 256},
    "trial": {"batch_tokens": 2048},
    "ladder": [{"name": "small", "width": 64, "layers": 2}, {"name": "large", "width": 128, "layers": 4}],
    "tokens_per_parameter": [20],
    "arms": {"baseline": {"scale_vectors": "baseline"}, "unified": {"scale_vectors": "unified"}},
    "seeds": [0, 1],
    "resources": {"default": {"checkpoint_s": 5}},
}


class Silent(Progress):
    """Says nothing."""

    def message(self, text: str) -> None:
        """Keep it."""


@dataclass
class Simulated:
    """A simulated sweep and what became of it."""

    run: SweepRun
    outcome: Outcome

    def directories(self) -> list[RunDirectory]:
        return directories_in(self.run.runs_dir)

    def results(self) -> dict[str, dict[str, Any]]:
        actual = {directory.trial_id: directory.result() for directory in self.directories()}
        return {name: result for name, result in actual.items() if result is not None}

    def losses(self) -> dict[tuple[Any, ...], float]:
        """Test losses by arm, rung, tokens, seed."""
        results = self.results()
        return {
            (member.cell.arm, member.cell.rung, member.trial.tokens, member.trial.seed): results[name]["loss"]
            for member in self.run.members()
            for name in [self.run.id_of(member.trial)]
        }


def sweep_run(
    runs_dir: Path, profile: Profile | None = None, *, of: dict[str, Any] = SWEEP, where: str | None = None,
    retune: bool = False, **sections: Any,
) -> SweepRun:  # fmt: skip
    """The run of a sweep (of ``SWEEP``) with some sections changed; nothing of it is sent."""
    sweep = sweeps.loads(yaml.safe_dump(of | sections, sort_keys=False))
    facts = nominal_corpus(sweep)
    return SweepRun(sweep, runs_dir, Silent(), facts, retune=retune, where=where, profile=profile)


def without_faults(simulate: dict[str, Any]) -> tuple[dict[str, Any], Faults]:
    """Return the section ``simulate`` as a sweep file has it, and what else it asks for."""
    planted, given = {**simulate}, {**simulate.get("faults", {})}
    struck = {name: given.pop(name) for name in ATTEMPT_FAULTS if name in given}
    struck |= {name: planted.pop(name) for name in ("nodes", "bad_nodes") if name in planted}
    return planted | {"faults": given}, Faults(**struck, seed=planted.get("seed", 0))


def simulated(runs_dir: Path, slots: int = 8, where: str | None = None, **sections: Any) -> Simulated:
    """Runs ``SWEEP`` with some sections changed, ``where`` of it.

    ``simulate`` may have the fields of ``Faults`` too, their probabilities in its part ``faults``.
    """
    planted, faults = without_faults(sections.pop("simulate", {}))
    run = sweep_run(runs_dir, where=where, **sections, simulate=planted)
    site = Site(runs_dir, run.sweep.name, slots, simulation=run.sweep.simulation())
    executor = FaultySimulation(site, faults)
    try:
        run.run(Scheduler(runs_dir, executor, run.progress))
    except StageIncompleteError as incomplete:
        return Simulated(run, incomplete.outcome)
    finally:
        executor.close()
    return Simulated(run, Outcome())
