"""One sweep from its file to finished trials: corpus, cells, tuning, comparison, and the record of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

from scalevec.model.config import ConfigurationError, RunOptions, require_whole_parts
from scalevec.orchestrator import costs
from scalevec.orchestrator.attempts.jobs import ResourceRequest, Task, tell_unreached
from scalevec.orchestrator.errors import InvalidInputError, read_or_else
from scalevec.orchestrator.executors.profiles import Profile, request_for
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.scheduling.watched_jobs import Outcome
from scalevec.orchestrator.sweep import kept_plan
from scalevec.orchestrator.sweep.kept_plan import Member
from scalevec.orchestrator.tuning import choices
from scalevec.orchestrator.tuning.tuner import Losses, Tuner
from scalevec.orchestrator.worker.provenance import commit_of
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.results.trial_state import ASKED_AGAIN, calling_off
from scalevec.sweeps.expansion.expand import arms_of_other_budgets, expand, identical_arms
from scalevec.sweeps.expansion.trials import Cell, CorpusFacts, epochs, evaluated_tokens
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial, OwnTrial, Protocol, shared_trunks

TUNING, COMPARISON = "tuning", "comparison"
_commit = cache(commit_of)
_WHENCE = "; the processes of a trial are its gpus or processes, times nodes"
_UNITS = {"tokens_per_parameter": "tokens/parameter", "tokens_budget": "tokens", "flops_budget": "FLOPs"}


class StageIncompleteError(Exception):
    """A stage ended with trials missing; ``outcome`` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("some trials have no result")
        self.outcome = outcome


class SweepRun:
    """A sweep on one RUNS_DIR. ``cells`` are its grid; ``tuner`` holds the choices made so far.

    Constructing it reads ``tuning.json`` and writes nothing; a damaged one is refused, where it is only to be
    planned (``only_plan``) left out with a warning. ``profile`` is that of the site where it runs,
    or would; ``where`` is an expression that says which trials are run.
    """

    def __init__(
        self,
        sweep: Sweep,
        runs_dir: Path,
        progress: Progress,
        corpus_facts: CorpusFacts,
        *,
        retune: bool = False,
        only_plan: bool = False,
        where: str | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.where, self.profile = where, profile or Profile()
        self.sweep, self.runs_dir, self.progress = sweep, runs_dir, progress
        self.folder = SweepFolder.of(runs_dir, sweep.name)
        self.corpus_facts = corpus_facts
        self.writers_agreed_to: tuple[str, ...] = ()
        """The other users from whose checkpoints own trainers may go on."""
        self.cells = expand(sweep, self.corpus_facts)
        settings = [cell.setting for cell in self.cells]
        self._varied = {name for name in settings[0] if len({str(other.get(name)) for other in settings}) > 1}
        frozen = [] if retune else self._frozen(only_plan=only_plan)
        tune, checked = sweep.tune, choices.checked_arms(sweep)
        extend, predict_larger = (tune.extend, tune.larger_rungs == "predicted") if tune else (0, False)
        say = progress.message
        self.tuner = Tuner(self.cells, frozen, extend, checked, say, predict_larger=predict_larger)
        self.id_of: Callable[[AnyTrial], str] = cache(lambda trial: trial.trial_id())
        """The trial's id, reckoned once."""
        self.request: Callable[[str], ResourceRequest] = cache(partial(request_for, sweep, self.profile))
        """What one attempt at a trial of a rung asks of a machine."""
        self.options: Callable[[str], RunOptions] = cache(self._options_of)
        """How the trials of a rung are run where they are sent to."""
        self._left_out: set[str] = set()
        self._n_asked = 0
        self._require_whole_parts()
        self.tuner.require_sources()
        if sweep.compare.predict:
            kept_plan.require_predicted(sweep, self._places())

    def _require_whole_parts(self) -> None:
        """Raise ``InvalidInputError`` where the processes of a trial cannot share out its batches."""
        for cell in self.cells:
            options = self.options(cell.rung)
            if options.processes > 1 and isinstance(cell.template, OwnTrial):
                try:
                    require_whole_parts(cell.template, options)
                except ConfigurationError as error:
                    raise InvalidInputError(f"{cell.rung}: {error}{_WHENCE}") from None

    def _frozen(self, *, only_plan: bool) -> list[choices.Choice]:
        of_file = self.sweep.tune.grids if self.sweep.tune else ()
        try:
            return choices.from_json(self.folder.tuning(), of_file)
        except (CorruptRecordError, InvalidInputError) as error:
            if only_plan:
                self.progress.message(f"warning: {error}; this plan is one before tuning")
                return []
            path = self.folder.tuning_path
            raise InvalidInputError(
                f"{error}; restore {path}, or choose again: scalevec run --retune"
            ) from None

    def warnings(self) -> list[str]:
        """What a person should know before this runs."""
        changed = kept_plan.changed_code(self.folder, self.cells, self.runs_dir)
        return [
            *identical_arms(self.cells),
            *arms_of_other_budgets(self.cells),
            *kept_plan.outdated(self.tuner),
            *changed,
            *self._unchecked_end(),
        ]

    def _unchecked_end(self) -> Iterator[str]:
        section, template = self.sweep.trainer, self.cells[0].template
        if section is None or section.tokens or not isinstance(template, ForeignTrial):
            return
        if not (template.steps and (section.metrics or section.pattern)):
            yield (
                "that losses are measured at the planned end cannot be checked: name tokens, or batch_tokens "
                "and metrics or a pattern with steps"
            )

    def write_file(self) -> None:
        """Keep the sweep file, as given and resolved, and which trials it drops that were started.

        Raises ``InvalidInputError`` where it declares or edits looks after the first result.
        """
        named = [member.to_json(self.id_of(member.trial)) for member in self.members()]
        before, places = kept_plan.members_before(self.folder), self._places()
        known = kept_plan.with_result(kept_plan.with_those_before(named, before, places), self.runs_dir)
        cells = {(entry["arm"], entry["rung"]) for entry in before}
        if before and cells.isdisjoint((cell.arm, cell.rung) for cell in self.cells):
            self.progress.message(
                f"warning: sweep {self.sweep.name} was run before with other arms and rungs alone: another "
                "sweep needs a name of its own"
            )
        kept_plan.check_looks(self.folder, self.sweep, known)
        kept_plan.keep_predictions(self.folder, self.sweep, known)
        if not known:
            kept_plan.keep_question(self.folder, self.sweep, [cell.arm for cell in self.cells])
        dropped = kept_plan.dropped_trials(self.folder, before, places, self.runs_dir)
        if dropped or self.folder.dropped():
            self.folder.write_dropped(dropped)
        self.folder.write_sweep(self.sweep.source.text.encode(), self.sweep.source.folder)
        self.folder.write_resolved(self.sweep.resolved())

    def _places(self) -> list[dict[str, Any]]:
        """The comparison trials before tuning, as in members.json without their names."""
        trials = ((cell, cell.trial(seed)) for cell in self.cells for seed in cell.seeds)
        return [Member(cell, COMPARISON, trial, "").to_json("") for cell, trial in trials]

    def ask_again(self) -> None:
        """A person asks for the sweep: that it, or a trial that is asked for, was called off counts no more.

        A scheduler or a controller that starts again by itself asks for nothing.
        """
        self.folder.ask_again()
        asked = {self.id_of(member.trial) for member in self.asked_for(self.members())}
        if self.where is None:
            with suppress(CorruptRecordError):  # reported by those who read it
                asked |= {member["trial_id"] for member in self.folder.members() or []}
        for name in asked:
            directory = RunDirectory.of(self.runs_dir, name)
            with suppress(CorruptRecordError):  # its scheduler says so
                if not directory.result_path.exists() and calling_off(directory.events()):
                    directory.append_event("pending", cause=ASKED_AGAIN)

    def run(self, scheduler: Scheduler) -> None:
        """Tune, freeze the choices, compare: of what is asked for, as far as its rates can be chosen.

        Raises :class:`StageIncompleteError` where trials are missing.
        """
        self.write_file()
        if self.tuner.cells:
            self._run_tuning(scheduler)
        self.write_members(members := self.members())
        self.progress.stage = COMPARISON
        self._complete(scheduler, [member for member in members if member.stage == COMPARISON])
        if self._left_out and not self._n_asked:
            raise InvalidInputError(f"--where {self.where!r} matches no trial of the sweep")
        if self._left_out:
            raise StageIncompleteError(Outcome(left_out=len(self._left_out)))

    def _run_tuning(self, scheduler: Scheduler) -> None:
        def train(trials: Sequence[tuple[Cell, AnyTrial]]) -> Losses:
            self.progress.stage = TUNING
            self.write_members(self.members())
            self._complete(scheduler, [Member(cell, TUNING, trial, "grid") for cell, trial in trials])
            return self.validation_loss

        self.folder.write_tuning(choices.to_json(self.tuner.run(train, self._has_result)))

    def _complete(self, scheduler: Scheduler, members: Sequence[Member]) -> None:
        asked = {self.id_of(member.trial): member for member in self.asked_for(members)}
        self._n_asked += len(asked)
        tell_unreached(self.directory(member.trial) for member in asked.values())
        outcome = scheduler.run([self.task(member) for member in asked.values()])
        others = (member.trial for member in members if self.id_of(member.trial) not in asked)
        self._left_out |= {self.id_of(trial) for trial in others if not self._has_result(trial)}
        outcome.left_out = len(self._left_out)
        if outcome.failed or outcome.stopped or outcome.cancelled:
            raise StageIncompleteError(outcome)

    def _has_result(self, trial: AnyTrial) -> bool:
        return read_or_else(self.directory(trial).result, None) is not None  # a damaged one is made again

    def asked_for(self, members: Sequence[Member]) -> Sequence[Member]:
        """Return those of ``members`` that this run is for: all, or those for which ``where`` holds."""
        if self.where is None or not members:
            return members
        entries = [member.to_json(self.id_of(member.trial)) for member in members]
        asked = kept_plan.holding(entries, self.where)
        return [member for member, is_asked in zip(members, asked, strict=True) if is_asked]

    def members(self) -> list[Member]:
        """Every trial of the sweep that can be named yet; comparison trials follow their choices."""
        grid = [Member(cell, TUNING, trial, "grid") for cell, trial in self.tuner.trials()]
        checks = [Member(cell, TUNING, trial, "check") for cell, trial in self.tuner.check_trials()]
        return [*grid, *checks] + [
            Member(cell, COMPARISON, cell.trial(seed, **values), status, check)
            for cell in self.cells
            if not self.tuner.is_open(cell)
            for values, status, check in [self._chosen(cell)]
            for seed in cell.seeds
        ]

    def to_come(self) -> list[Member]:
        """The compared trials whose tuned fields are still to be chosen, as they are before that."""
        unnamed = [(cell, seed) for cell in self.cells if self.tuner.is_open(cell) for seed in cell.seeds]
        return [Member(cell, COMPARISON, cell.trial(seed), "") for cell, seed in unnamed]

    def _chosen(self, cell: Cell) -> tuple[dict[str, float], str, str | None]:
        """The tuned values of ``cell``, the weakest status among them, and what a check of the rate found."""
        chosen = self.tuner.of(cell)
        statuses = {choice.lr_status for choice in chosen.values()}
        status = next((name for name in ("censored", "carried", "tuned") if name in statuses), "fixed")
        if cell.tuned_arm != cell.arm and status != "censored":
            status = "shared"
        checks = [choice.check.status for choice in chosen.values() if choice.check is not None]
        return {field: choice.chosen for field, choice in chosen.items()}, status, next(iter(checks), None)

    def write_members(self, members: Sequence[Member]) -> None:
        """Keep which trials belong to the sweep, and which compared ones still have no name.

        Those of one trunk are a cluster, as they are correlated.
        """
        trunks = shared_trunks({self.id_of(member.trial): member.trial for member in members})
        entries = [self._entry(member, trunks) for member in members]
        to_come = [self._entry(member, {}) for member in self.to_come()]
        kept_plan.keep_members(self.folder, entries, to_come)

    def _entry(self, member: Member, trunks: Mapping[str, str]) -> dict[str, Any]:
        """The entry of members.json: what names the trial, and what it is planned to take."""
        name = self.id_of(member.trial)
        seconds = self.cost(member.trial, member.cell.rung).planned_s
        return member.to_json(name, trunks.get(name), seconds) | self.request(member.cell.rung).devices()

    def directory(self, trial: AnyTrial) -> RunDirectory:
        """Where the trial is kept."""
        return RunDirectory.of(self.runs_dir, self.id_of(trial))

    def validation_loss(self, trial: AnyTrial) -> float:
        """The validation loss of a finished trial; infinite where it diverged."""
        result = self.directory(trial).result()
        if result is None:
            raise RuntimeError(f"trial {self.id_of(trial)} has no result")
        loss = result["loss_validation"]
        if loss is None and isinstance(trial, ForeignTrial):  # which may have one text for both
            loss = result["loss"]
        return float("inf") if loss is None else float(loss)

    def _options_of(self, rung: str) -> RunOptions:
        resources, request, measure = self.sweep.resources_for(rung), self.request(rung), self.sweep.measure
        device: Literal["cpu", "cuda"] = "cuda" if request.gpus else "cpu"
        # A GPU compiles unless it is told not to; on a CPU the compiler takes longer than it saves.
        compiled = resources.compile == "always" or (resources.compile == "auto" and device == "cuda")
        options = RunOptions(
            device=device,
            compiled=compiled and self.sweep.trainer is None,
            micro_batch=resources.micro_batch,
            processes=request.world_size,
            shard=request.shard,
            checkpoint_s=resources.checkpoint_s,
            keep=self.sweep.keep_for(rung),
        )
        if measure:
            options = replace(options, measure=measure.what, measure_steps=measure.every)
        if resources.recompute != "auto":
            return replace(options, recompute=resources.recompute)
        trials = (cell.template for cell in self.cells if cell.rung == rung)
        own_trials = [trial for trial in trials if isinstance(trial, OwnTrial)]
        return replace(options, recompute=costs.recompute_for(own_trials, options, self.room(rung)))

    def room(self, rung: str) -> costs.Room | None:
        """Return the memory that a process of ``rung`` has; None where nobody says."""
        gpus = self.profile.for_rung(rung).gpus
        card = gpus.partition(":")[0] if isinstance(gpus, str) else None
        return costs.room_of(self.request(rung), card)

    def task(self, member: Member) -> Task:
        """What the scheduler needs to know of a trial."""
        name = self.id_of(member.trial)
        return Task(
            name,
            member.trial,
            self.label(member),
            self.options(member.cell.rung),
            self.cost(member.trial, member.cell.rung).seconds,
            self._descriptive(member),
            member.cell.arm,
            member.cell.rung,
            self.request(member.cell.rung),
            self.profile.interpreter(member.cell.rung),
            self._protocol(),
        )

    def _protocol(self) -> Protocol | None:
        if self.sweep.trainer is None:
            return None
        protocol = self.sweep.trainer.protocol(self.sweep.source.folder)
        return replace(protocol, writers_agreed_to=self.writers_agreed_to)

    @cached_property
    def pace(self) -> dict[int, float]:
        """Seconds for a parameter and a token, of this sweep's finished trials, by N."""
        return costs.pace_of(self.folder, self.runs_dir)

    def cost(self, trial: AnyTrial, rung: str) -> costs.Cost | costs.ForeignCost:
        """Estimate what ``trial`` of ``rung`` takes, after the finished trials.

        The seconds of a foreign trainer's are those that are asked for, where somebody does.
        """
        seen = costs.seen_seconds(self.pace, trial.n_params, trial.tokens)
        if not isinstance(trial, ForeignTrial):
            return costs.Cost(trial, self.options(rung), evaluated_tokens(trial, self.corpus_facts), seen)
        if (asked := self.request(rung).time_s) is not None:
            return costs.ForeignCost(trial, asked, "as resources.time says")
        return costs.ForeignCost(trial, seen, costs.SEEN)

    def epochs(self, trial: AnyTrial) -> float | None:
        """How often ``trial`` goes through its text; None where that is a foreign trainer's affair."""
        return None if isinstance(trial, ForeignTrial) else epochs(trial, self.corpus_facts)

    def label(self, member: Member) -> str:
        """Return what a person calls the trial: arm, rung, what else differs in this sweep, seed, rate."""
        words = [member.cell.arm, member.cell.rung]
        for name, value in member.cell.setting.items():
            if name in self._varied:
                words.append(f"{value:.4g} {_UNITS[name]}" if name in _UNITS else f"{name} {value}")
        words.append(f"seed {member.trial.seed}")
        if (rate := member.trial.learning_rate) is not None:
            words.append(f"learning rate {rate:.3g}")
        return " ".join(words)

    @property
    def max_gpu_hours(self) -> float | None:
        """The smaller of the limits that the sweep and the profile set; None where neither does."""
        limits = (self.sweep.max_gpu_hours, self.profile.max_gpu_hours)
        return min((limit for limit in limits if limit is not None), default=None)

    def _descriptive(self, member: Member) -> dict[str, Any]:
        """What trial.json says beside the semantic fields; the first sweep that holds the trial says it."""
        described = {
            "first_sweep": self.sweep.name,
            "first_label": self.label(member),
            **member.trial.size_columns(),
        }
        if isinstance(member.trial, ForeignTrial):
            return {**described, "trainer_commit": _commit(self.sweep.source.folder)}
        return {**described, "epochs": self.epochs(member.trial), "corpus_source": self.sweep.corpus.source}
