"""The sweep file as frozen pydantic models: types, defaults, and what one section can check alone.

What needs several sections is in ``sweeps.reading``, what needs a whole trial in ``expansion.expand``.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from scalevec.model.config import MEASURES
from scalevec.sweeps.errors import DEVICES, refused
from scalevec.sweeps.ladders import BUDGETS, DEFAULT_BUDGETS, TOKENS, TOKENS_PER_PARAMETER
from scalevec.sweeps.plugins.locate import Plugin
from scalevec.sweeps.sections import entries
from scalevec.sweeps.sections.compare import NO_OPTIONS, Compare
from scalevec.sweeps.sections.corpus import CorpusSection
from scalevec.sweeps.sections.rungs import Ladder
from scalevec.sweeps.sections.simulate import Simulate
from scalevec.sweeps.sections.trainer import FieldKind, FieldName, Formula, TrainerSection
from scalevec.sweeps.trainers.source_files import files_of
from scalevec.sweeps.yaml_source import SweepSource

Scalar = str | int | float | bool


def _minutes(value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value != "auto" and not (is_number and 0 < value < 1e9):
        raise entries.problem(refused(value, "auto, or a positive number of minutes"))
    return value if value == "auto" else float(value)


def _whole_devices(value: float) -> float:
    if value > 1 and value != int(value):
        raise entries.problem(refused(value, DEVICES))
    return value


Keep = Literal["none", "weights", "all"]


class Resources(entries.Given):
    """What one trial of a rung needs from the machine."""

    time: Annotated[
        float | Literal["auto"], PlainValidator(_minutes, json_schema_input_type=float | Literal["auto"])
    ] = "auto"
    """Minutes, or ``auto``: estimated."""
    memory_gb: entries.Positive | None = None
    """Memory of each process; estimated where it is not given."""
    gpus: Annotated[entries.Number, Field(ge=0, le=4096), AfterValidator(_whole_devices)] = 0.0
    """GPUs of each machine, with one process each; or a share of one: several small trials then run on it,
    where the executor can do that."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 1
    """Processes of each machine, where the trial is trained without GPUs."""
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1
    """Machines that train the trial together."""
    shard: bool = False
    """Whether each process keeps but its share of the parameters and the optimizer's state."""
    cpus: Annotated[int, Field(ge=1, le=4096)] = 1
    """CPU cores of each process."""
    micro_batch: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Sequences in one forward pass of a process; 0 takes all that it has of a batch."""
    recompute: Literal["auto", "none", "block"] = "auto"
    """What the backward pass goes forward through again instead of keeping it: nothing, or each block;
    ``auto`` takes blocks where a trial of the rung would not fit on its device otherwise."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether blocks are compiled for training; ``auto`` does so on a GPU and not on a CPU.
    Chosen once: trials that began keep what they have (docs/times.md)."""
    checkpoint_s: entries.Positive = 180.0
    """Seconds between two checkpoints."""
    keep: Keep | None = None
    """What is kept of a completed trial's checkpoints; as the sweep's own ``keep`` where it is not given."""

    @model_serializer(mode="wrap")
    def _only_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A default that is written out would stand over the section ``default``."""
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}


class MeasureSection(entries.Section):
    """What is measured along every run besides its loss (docs/theory.md); no bit of the run depends on it."""

    what: entries.Items[
        Annotated[
            str,
            entries.one_of(MEASURES, "no such measure"),
            Field(json_schema_extra={"enum": list(MEASURES)}),
        ]
    ]
    """The measurements."""
    every: entries.Count = 100
    """Optimizer steps between two measurements; the first and the last step are measured too."""


def _scalars(value: Any) -> tuple[Scalar, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(item, Scalar) for item in values):
        raise entries.problem(refused(value, "a value, or a list of values any of which matches"))
    return tuple(values)


Rule = dict[
    str, Annotated[tuple[Any, ...], BeforeValidator(_scalars, json_schema_input_type=Scalar | list[Scalar])]
]


def _name_of_a_folder(value: str) -> str:
    if ".." in value or value.startswith((".", "-")):
        raise entries.problem(refused(value, "a name without '..' that begins with a letter or digit"))
    return value


NAME_PATTERN = r"^[A-Za-z0-9._-]{1,80}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN), AfterValidator(_name_of_a_folder)]
MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


class PluginEntry(entries.Section):
    """A package whose optimizers, schedules and laws the sweep may name (docs/plugins.md)."""

    module: Annotated[str, Field(pattern=MODULE_PATTERN)]
    """A module, beside the sweep file or installed."""
    code_version: Annotated[int, Field(ge=0)] | None = None
    """What stands in the identity of trials for the content of the package."""


class Sweep(entries.Section):
    """One sweep file: a grid of trials and the questions asked of them.

    Which fields its sections of trial fields take is told by ``sections.sweep_model``.
    """

    model_config = ConfigDict(defer_build=True)  # only what sweep_model makes of it reads files

    name: Name
    """Name of the sweep and of its folder below the runs directory."""
    plugins: entries.Items[Annotated[PluginEntry, entries.by_name("module", PluginEntry)]] | None = None
    """Packages of your own code: a module's name, or {module: NAME, code_version: NUMBER}."""
    corpus: CorpusSection = CorpusSection()
    """Where the training text comes from and how it becomes tokens."""
    trainer: TrainerSection | None = None
    """What trains in place of our own loop: a command."""
    fields: dict[FieldName, FieldKind] = Field(default_factory=dict)
    """Own fields of a trainer, with their types: {dropout: float}."""
    n_params: Formula | None = None
    """N of a trainer's models as a formula over fields: 12 * layers * width ** 2."""
    trial: entries.Given = entries.Given()
    """Fields that all trials share; whatever is left out has a default."""
    ladder: Ladder
    """The rungs: names of presets, shapes, or a rule such as {from: 1e7, to: 2e9, rungs: 8}."""
    tokens_per_parameter: entries.Items[Annotated[entries.Positive, Field(le=1_000_000)]] | None = None
    """Token budgets in multiples of N; [20] where no budget is given."""
    tokens: entries.Items[Annotated[entries.Positive, Field(le=1e15)]] | None = None
    """Token budgets in tokens, instead of tokens_per_parameter."""
    flops: entries.Items[Annotated[entries.Positive, Field(le=1e30)]] | None = None
    """Token budgets in training FLOPs, C = 6 N D (isoFLOP), instead of tokens_per_parameter."""
    optimizers: entries.Items[entries.Named] | None = None
    """Optimizers that are all run: a name, or {name: NAME} with the optimizer's options."""
    schedules: entries.Items[entries.Named] | None = None
    """Learning-rate schedules that are all run: a name, or {name: NAME} with the schedule's options."""
    arms: Annotated[dict[entries.Label, entries.Given], Field(min_length=1)]
    """The arms that are compared: a label, and the trial fields in which the arm differs."""
    tune: entries.TuneLists | None = None
    """Fields that are tuned for every arm before the comparison, with their grids."""
    seeds: entries.Items[entries.Seed] = (0, 1)
    """Seeds of the comparison: a list, or one seed by its value (3 is the one seed 3, not three seeds)."""
    grid: entries.ListsOfFields = entries.ListsOfFields()
    """Further trial fields with lists of values; the product of all lists is run."""
    zip: entries.ListsOfFields = entries.ListsOfFields()
    """Further trial fields with lists of one length that advance together."""
    exclude: entries.Several[Rule] = ()
    """Rules that drop the trials whose fields match, such as {rung: NAME, seed: 1}."""
    compare: Compare = NO_OPTIONS
    """How the finished trials are compared: the reference arm, the law, the options of the fit."""
    measure: MeasureSection | None = None
    """What is measured along every run besides its loss."""
    resources: dict[str, Resources] = Field(default_factory=dict)
    """What a trial needs from the machine, by rung, with ``default`` for all rungs."""
    max_gpu_hours: Annotated[entries.Number, Field(ge=0)] | None = None
    """Limit on the plan's GPU hours; a plan beyond it is refused before anything is submitted."""
    keep: Keep = "none"
    """What is kept of a completed trial's checkpoints."""
    simulate: Simulate = Simulate()
    """What ``--executor simulate`` plants in place of training."""

    _source: SweepSource = PrivateAttr()
    _plugins: tuple[Plugin, ...] = PrivateAttr(())

    @property
    def found_plugins(self) -> tuple[Plugin, ...]:
        """The plugins with their files, as they were when the sweep was read."""
        return self._plugins

    @property
    def source(self) -> SweepSource:
        """The file as read, with the line of every field."""
        return self._source

    @property
    def reference(self) -> str:
        """The arm that the others are compared with: as given, else ``baseline``, else the first."""
        if self.compare.reference is not None:
            return self.compare.reference
        return "baseline" if "baseline" in self.arms else next(iter(self.arms))

    @property
    def budget_kind(self) -> str:
        """How the file gives its token budgets (``sweeps.ladders``)."""
        if self.budget_is_rungs:
            return TOKENS
        return next((kind for kind in BUDGETS if getattr(self, kind) is not None), TOKENS_PER_PARAMETER)

    @property
    def budget_is_rungs(self) -> bool:
        """Whether each rung has a budget of its own, which is then no setting."""
        return self.ladder[0].tokens is not None

    @property
    def budgets(self) -> tuple[float, ...]:
        """The budgets, in their kind; empty where each rung has its own."""
        given: tuple[float, ...] | None = getattr(self, self.budget_kind)
        return (() if self.budget_is_rungs else DEFAULT_BUDGETS) if given is None else given

    @property
    def tuned_rungs(self) -> tuple[str, ...]:
        """The rungs at which every arm is tuned (all of them where ``tune`` names none)."""
        if self.tune is None:
            return ()
        return self.tune.rungs or tuple(rung.name for rung in self.ladder)

    def corpus_files(self, name: str = "files") -> list[Path]:
        """The files that the corpus lists under ``name``, sorted, each once."""
        folder, patterns = self.source.folder, getattr(self.corpus, name) or ()
        return sorted({folder / file for pattern in patterns for file in files_of(folder, pattern)})

    def resources_for(self, rung: str) -> Resources:
        """What a trial of ``rung`` needs: the rung's own fields over those of ``default``."""
        sections = [self.resources[key] for key in ("default", rung) if key in self.resources]
        merged = {name: value for section in sections for name, value in section.given().items()}
        return Resources(**merged)

    def keep_for(self, rung: str) -> str:
        """What is kept of the checkpoints of a completed trial of ``rung``."""
        return self.resources_for(rung).keep or self.keep

    def simulation(self) -> dict[str, Any]:
        """The section ``simulate`` as plain data; a best rate that is missing is the middle of the grid."""
        planted = self.simulate.model_dump(mode="json", exclude_none=True)
        grid = self.tune.grids.get("learning_rate") if self.tune is not None else None
        if grid:
            planted["learning_rate"].setdefault("optimum", math.sqrt(grid[0] * grid[-1]))
        return planted

    def resolved(self) -> dict[str, Any]:
        """The sweep as plain data with presets and defaults written out; loads as the same sweep."""
        data = self.model_dump(mode="json", exclude_none=True)
        data["compare"]["reference"] = self.reference
        if not self.budget_is_rungs:
            data[self.budget_kind] = list(self.budgets)
        if self.trainer is not None:  # whose text is its own affair
            del data["corpus"]
        return data
