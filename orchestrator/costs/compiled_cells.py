"""Which cells are trained with compiled blocks: chosen before their first trial, and kept with the sweep.

Compiled blocks sum in another order, which moves losses as much as a small effect does. So trials that are
compared with each other take one of the two, in all attempts, whatever a later version would choose.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scalevec.model.train.devices import missing_compiler
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.sweeps.budgets import BUDGETS, setting_name

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.expansion.trials import Cell

LACKING = "this machine lacks "
"""How a reason begins for which nothing is compiled that would be."""

Group = tuple[str, str]
"""Rung and setting without budgets, as text: those of a rung that share a trunk must be trained alike."""


@dataclass(frozen=True)
class CompileChoice:
    """Whether the trials of ``rung`` in ``setting`` are compiled, and why."""

    rung: str
    setting: str
    compiled: bool
    reason: str


class CompiledCells:
    """The choices of one sweep; nothing is read before the first is asked for.

    ``sent_away``: trials go to machines of which nobody knows here whether they have a compiler; their
    workers look. ``gpus_elsewhere``: this machine has none, so that what is for a GPU is compiled where it
    goes.
    """

    def __init__(self, run: "SweepRun") -> None:
        self._run = run
        self.sent_away = self.gpus_elsewhere = False

    def is_compiled(self, cell: "Cell") -> bool:
        """Whether the trials of ``cell`` are trained with compiled blocks."""
        return self._choices[_group_of(cell)].compiled

    def choices(self) -> list[CompileChoice]:
        """One for each rung and setting."""
        return list(self._choices.values())

    def keep(self) -> None:
        """Write the choices down. Raises ``MissingRequirementError`` where ``always`` cannot be had here."""
        if self._run.sweep.trainer is not None:
            return
        for choice in self.choices():
            self._say_if_overruled(choice)
            device = self._run.options(choice.rung).device
            missing = "" if self.sent_away or not choice.compiled else missing_compiler(device)
            if missing:
                raise MissingRequirementError(
                    f"rung {choice.rung} is trained with compiled blocks ({choice.reason}), and this machine "
                    f"lacks {missing}. Install that, or train the rung where it is"
                )
        self._run.folder.write_arithmetic([asdict(choice) for choice in self.choices()])

    def _say_if_overruled(self, choice: CompileChoice) -> None:
        asked, answer = self._run.sweep.resources_for(choice.rung).compile, choice.compiled
        if asked not in ("auto", "always" if answer else "never"):
            self._run.progress.message(
                f"warning: rung {choice.rung} stays {'compiled' if answer else 'uncompiled'}, as its trials "
                f"began: compile: {asked} comes too late"
            )

    @cached_property
    def _choices(self) -> Mapping[Group, CompileChoice]:
        groups = dict.fromkeys(map(_group_of, self._run.cells))
        entries = self._run.folder.arithmetic()
        choices = [
            CompileChoice(*(entry[field.name] for field in fields(CompileChoice))) for entry in entries
        ]
        kept = {(choice.rung, choice.setting): choice for choice in choices}
        return {group: self._chosen(group, kept.get(group)) for group in groups}

    def _chosen(self, group: Group, kept: CompileChoice | None) -> CompileChoice:
        if self._run.sweep.trainer is not None:
            return CompileChoice(*group, False, "a trainer of its own")
        asked = self._run.sweep.resources_for(group[0]).compile
        if kept is not None and asked in ("auto", "always" if kept.compiled else "never"):
            return kept
        begun = self._begun.get(group)
        if begun is not None:
            return kept or CompileChoice(*group, begun, "as its first trials were")
        if asked != "auto":
            return CompileChoice(*group, asked == "always", f"compile: {asked}")
        return CompileChoice(*group, *self._by_device(group[0]))

    def _by_device(self, rung: str) -> tuple[bool, str]:
        """The choice where the sweep leaves it open, and why."""
        device = self._run.options(rung).device
        if device == "cpu":
            return False, "on a CPU"
        is_elsewhere = self.sent_away or self.gpus_elsewhere
        missing = "" if is_elsewhere else missing_compiler(device)
        return (False, LACKING + missing) if missing else (True, "on a GPU")

    @cached_property
    def _begun(self) -> Mapping[Group, bool]:
        """Of each group with a trial on record, whether those that have a result were compiled."""
        run, existing = self._run, set(trial_ids(self._run.runs_dir))
        begun: dict[Group, bool] = {}
        for member in run.members() if existing else ():
            name, group = run.id_of(member.trial), _group_of(member.cell)
            if name in existing and begun.get(group, True):
                directory = RunDirectory.of(run.runs_dir, name)
                result: Mapping[str, Any] | None = directory.result()
                if result is not None or directory.events():
                    begun[group] = (result or {}).get("arithmetic") == "compiled"
        return begun


def _group_of(cell: "Cell") -> Group:
    budgets = {setting_name(kind) for kind in BUDGETS}
    setting = {name: str(value) for name, value in sorted(cell.setting.items()) if name not in budgets}
    return cell.rung, json.dumps(setting)
