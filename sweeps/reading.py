"""From a file to a valid sweep: everything is checked, and every problem has its line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scalevec.sweeps.errors import (
    Path,
    Problem,
    SweepError,
    not_among,
    refused,
    refused_by_pydantic,
    shown,
    unknown,
)
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CELL_FIELDS, CorpusFacts
from scalevec.sweeps.fields import OF_STRATEGY, TRIAL_FIELDS
from scalevec.sweeps.ladders import BUDGETS
from scalevec.sweeps.plugins.locate import Plugin, PluginError, find
from scalevec.sweeps.plugins.registered import register
from scalevec.sweeps.sections.corpus import PACKAGE_PATTERN
from scalevec.sweeps.sections.entries import LABEL_PATTERN, PROBLEM, UNKNOWN_KEY, Given, Strategy
from scalevec.sweeps.sections.schema import MODULE_PATTERN, NAME_PATTERN, Sweep
from scalevec.sweeps.sections.sweep_model import sweep_model
from scalevec.sweeps.sections.trainer import FIELD_PATTERN, KINDS, RESERVED, SOURCE_PATTERN
from scalevec.sweeps.trainer_checks import missing_code, secrets_in, trainer_problems
from scalevec.sweeps.trainers.source_files import files_of
from scalevec.sweeps.yaml_source import SweepSource

_Finding = tuple[Path, str]


def problems_of(sweep: Sweep, *, look_for_files: bool = True) -> list[Problem]:
    """Every problem between the sections of ``sweep``, with its line."""
    of_names = (_ladder, _tune, _seeds, _compare, _predictions, _names, _exclude, secrets_in)
    of_files = (_missing_files, missing_code) if look_for_files else ()
    checks = (*of_names, *of_files, trainer_problems, _budgets, _zip, _given_once, _evaluation)
    return [sweep.source.problem(path, message) for check in checks for path, message in check(sweep)]


def _rungs(sweep: Sweep) -> list[str]:
    return [rung.name for rung in sweep.ladder]


def _ladder(sweep: Sweep) -> Iterator[_Finding]:
    names = _rungs(sweep)
    for position, name in enumerate(names):
        if name in names[:position]:
            yield ("ladder", position), f"a second rung is called {name}; allowed: each name once"
        if name == "default":
            yield ("ladder", position), refused(name, "another name (resources uses this one)")


def _tune(sweep: Sweep) -> Iterator[_Finding]:
    if sweep.tune is None:
        return
    lists = sweep.tune.lists()
    if not lists:
        yield ("tune",), "names no field to tune; give one, such as learning_rate: [0.008, 0.016, 0.032]"
    for name, values in lists.items():
        if len(values) < 2:
            yield ("tune", name), refused(list(values), "two values or more (three bracket an optimum)")
    if sweep.tune.check_carried and "learning_rate" not in lists:
        yield (
            ("tune", "check_carried"),
            refused(sweep.tune.check_carried, "false where learning_rate is not tuned"),
        )
    for position, rung in enumerate(sweep.tune.rungs or ()):
        if rung not in _rungs(sweep):
            yield ("tune", "rungs", position), not_among(rung, _rungs(sweep), "not in ladder")


def _seeds(sweep: Sweep) -> Iterator[_Finding]:
    compared = set(sweep.seeds)
    for position, seed in enumerate(sweep.tune.seeds if sweep.tune else ()):
        if seed in compared:
            allowed = "seeds that are not among the comparison's (what is tuned on a seed looks good on it)"
            yield ("tune", "seeds", position), refused(seed, allowed)


def _compare(sweep: Sweep) -> Iterator[_Finding]:
    reference = sweep.compare.reference
    if reference is not None and reference not in sweep.arms:
        yield ("compare", "reference"), not_among(reference, sweep.arms, "no such arm")
    looks = sweep.compare.options().looks
    if looks and list(sweep.seeds) != sorted(sweep.seeds):
        yield ("seeds",), refused(list(sweep.seeds), "seeds in increasing order: a look takes the first ones")
    if looks and len(sweep.seeds) > looks[-1]:
        allowed = f"at most as many seeds as the last of compare.looks ({looks[-1]})"
        yield ("seeds",), refused(list(sweep.seeds), allowed)


def _predictions(sweep: Sweep) -> Iterator[_Finding]:
    entries = sweep.compare.predict or ()
    for position, entry in enumerate(entries):
        if entry in entries[:position]:
            first = entries.index(entry)
            yield ("compare", "predict", position), f"stands in the list twice, first at [{first}]"
        reference = entry.reference or sweep.reference
        for name, arm in (("arm", entry.arm), ("reference", reference)):
            if arm not in sweep.arms:
                yield ("compare", "predict", position, name), not_among(arm, sweep.arms, "no such arm")
        if entry.arm == reference:
            allowed = f"another arm than its reference, {reference}"
            yield ("compare", "predict", position, "arm"), refused(entry.arm, allowed)
    if sweep.compare.predict and sweep.compare.options().looks:
        yield ("compare", "predict"), "predictions are judged once; allowed: no compare.looks beside them"


def _names(sweep: Sweep) -> Iterator[_Finding]:
    """Keys that name no rung and no arm."""
    rungs = ["default", *_rungs(sweep)]
    for path, given, known, what in (
        (("resources",), sweep.resources, rungs, "no such rung"),
        (("simulate", "arms"), sweep.simulate.arms, sweep.arms, "no such arm"),
    ):
        yield from (((*path, name), unknown(name, known, what)) for name in given if name not in known)


def _missing_files(sweep: Sweep) -> Iterator[_Finding]:
    """What the corpus names and is no file."""
    folder, corpus = sweep.source.folder, sweep.corpus
    named: list[_Finding] = [
        (("corpus", name, position), pattern)
        for name in ("files", "validation", "test")
        for position, pattern in enumerate(getattr(corpus, name) or ())
    ]
    if corpus.tokenizer.file is not None:
        named.append((("corpus", "tokenizer", "file"), corpus.tokenizer.file))
    for path, pattern in named:
        if not files_of(folder, pattern):
            yield path, f"{shown(pattern)}: no such file (looked in {folder}, the sweep file's folder)"


def _budgets(sweep: Sweep) -> Iterator[_Finding]:
    given = [kind for kind in BUDGETS if getattr(sweep, kind) is not None]
    for kind in given[1:]:
        yield (kind,), f"the budget is given by {given[0]} too; allowed: one of {', '.join(BUDGETS)}"
    with_tokens = [position for position, rung in enumerate(sweep.ladder) if rung.tokens is not None]
    if with_tokens and (given or len(with_tokens) < len(sweep.ladder)):
        allowed = f"tokens at every rung and none of {', '.join(BUDGETS)} for the sweep, or at no rung"
        yield ("ladder", with_tokens[0], "tokens"), refused(sweep.ladder[with_tokens[0]].tokens, allowed)


def _zip(sweep: Sweep) -> Iterator[_Finding]:
    lengths = {name: len(values) for name, values in sweep.zip.given().items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        yield ("zip",), f"lists of different lengths: {text}; allowed: lists of one length, advanced together"


def _with_strategy(fields: Given) -> Iterator[str]:
    """The fields that an arm gives, those of its scale vectors too."""
    yield from fields.given()
    strategy = getattr(fields, "scale_vectors", None)
    yield from (OF_STRATEGY + name for name in (strategy.given() if isinstance(strategy, Strategy) else ()))


def _given_once(sweep: Sweep) -> Iterator[_Finding]:
    """Two sections that both choose a field would silently overrule each other."""
    parts = (("optimizer", sweep.optimizers), ("schedule", sweep.schedules))
    sections: list[tuple[Path, set[str]]] = [
        ((f"{part}s",), {name for entry in entries for name in entry.given()} - {"name"} | {part})
        for part, entries in parts
        if entries
    ]
    sections += [(("grid",), set(sweep.grid.given())), (("zip",), set(sweep.zip.given()))]
    sections.append((("tune",), set(sweep.tune.lists() if sweep.tune else ())))
    chosen_by: dict[str, str] = {}
    for path, names in sections:
        yield from _chosen_before(path, names, chosen_by)
        chosen_by = {_slot(name): str(path[0]) for name in names} | chosen_by
    for label, fields in sweep.arms.items():
        yield from _chosen_before(("arms", label), _with_strategy(fields), chosen_by)
    for position, rung in enumerate(sweep.ladder if sweep.trainer is not None else ()):
        yield from _chosen_before(("ladder", position), rung.trial_fields(), chosen_by)


def _chosen_before(path: Path, names: Iterable[str], chosen_by: Mapping[str, str]) -> Iterator[_Finding]:
    for name in sorted(names):
        if other := chosen_by.get(_slot(name)):
            yield (*path, name), f"the field is chosen by {other} too; allowed: one of the two"


def _slot(name: str) -> str:
    """The two forms of the warm-up fill one slot; any other field is its own."""
    return "warmup" if name.startswith("warmup_") else name


def _evaluation(sweep: Sweep) -> Iterator[_Finding]:
    for label, fields in sweep.arms.items():
        if "evaluation_tokens" in fields.given():
            allowed = "evaluation_tokens under trial, grid or zip (arms are compared on the same tokens)"
            yield ("arms", label, "evaluation_tokens"), refused(fields.given()["evaluation_tokens"], allowed)


def _exclude(sweep: Sweep) -> Iterator[_Finding]:
    known = ["optimizer", "schedule", sweep.budget_kind, *sweep.grid.given(), *sweep.zip.given()]
    for position, rule in enumerate(sweep.exclude):
        if not rule:
            yield (("exclude", position), refused({}, "fields to match, such as {rung: NAME, seed: 1}"))
        for name in rule:
            if name not in [*CELL_FIELDS, *known]:
                yield ("exclude", position, name), unknown(name, [*CELL_FIELDS, *known], "unknown field")


_OF_A_TRIAL = ("trial", "ladder", "arms", "grid", "zip", "tune")
_DECLARE = "; a field of the trainer's own is declared under fields, with its type"
_PATTERNS = {
    FIELD_PATTERN: "a letter, then letters, digits or _",
    SOURCE_PATTERN: "the name of a file or a folder, or a pattern",
    LABEL_PATTERN: "1 to 40 letters, digits or signs of . _ + -",
    NAME_PATTERN: "1 to 80 letters, digits or signs of . _ -",
    PACKAGE_PATTERN: "a distribution, NAME or NAME==VERSION",
    MODULE_PATTERN: "the name of a module, such as mylab.arms; never a path",
}


def read(source: SweepSource, *, look_for_files: bool = True) -> Sweep:
    """The sweep that ``source`` describes. Raises :class:`SweepError` with all that is wrong.

    Files of the corpus that are not there are wrong too, unless nobody shall look for them.
    """
    if not isinstance(source.data, dict):
        allowed = "a mapping of fields (name, ladder, arms)"
        raise SweepError([source.problem((), refused(source.data, allowed))])
    plugins, options = _plugins_of(source)
    try:
        sweep = sweep_model(source.data, options).model_validate(source.data)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        unknown_keys = [details for details in wrong if details["type"] == UNKNOWN_KEY]
        raise SweepError(
            _problem(source, details)
            for details in wrong
            if not _is_of_a_declaration(source, details) and not _is_misspelt(details, unknown_keys)
        ) from None
    sweep._source, sweep._plugins = source, plugins
    if problems := problems_of(sweep, look_for_files=look_for_files):
        raise SweepError(problems)
    expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, training_tokens=2**200))  # enough for any sweep
    return sweep


def _plugins_of(source: SweepSource) -> tuple[tuple[Plugin, ...], frozenset[str]]:
    """Return the plugins of a file, which are known from now on, and the names of their options.

    None where what names them is refused with the other sections. Raises ``SweepError`` for one that cannot
    be used.
    """
    annotation: Any = Sweep.model_fields["plugins"].rebuild_annotation()
    try:
        entries = TypeAdapter(annotation).validate_python(source.data.get("plugins")) or ()
    except ValidationError:
        return (), frozenset()
    plugins, options, problems = list[Plugin](), set[str](), list[Problem]()
    for position, entry in enumerate(entries):
        try:
            plugins.append(find(entry.module, source.folder, entry.code_version))
            options |= register(plugins[-1])
        except (PluginError, OSError) as error:
            problems.append(source.problem(("plugins", position), str(error)))
    if problems:
        raise SweepError(problems)
    return tuple(plugins), frozenset(options)


def _is_of_a_declaration(source: SweepSource, details: Any) -> bool:
    """Whether a field is unknown only since ``fields`` declares it wrongly, which is found too."""
    trainer = source.data.get("trainer")
    declared = [part.get("fields") for part in (source.data, trainer) if isinstance(part, dict)]
    name, known = details["loc"][-1], declared[0] if isinstance(declared[0], dict) else {}
    is_declared = any(name in part for part in declared if isinstance(part, dict | list))
    is_wrong = is_declared and (name in RESERVED or str(known.get(name)) not in KINDS)
    return is_wrong and details["type"] == UNKNOWN_KEY and trainer is not None


def _is_misspelt(details: Any, unknown_keys: list[Any]) -> bool:
    """Whether a field is missing that stands in its section under a name which is refused as unknown."""
    *section, name = details["loc"]
    beside = [key["ctx"]["message"] for key in unknown_keys if [*key["loc"][:-1]] == section]
    return details["type"] == "missing" and any(f"did you mean {name}?" in message for message in beside)


def _problem(source: SweepSource, details: Any) -> Problem:
    """What pydantic found, in our words and with its line."""
    kind, context = details["type"], details.get("ctx", {})
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    if kind == UNKNOWN_KEY and len(path) > 1 and path[-1] in Sweep.model_fields:
        return source.problem(path, "unknown key here; it stands at the top of the file")
    if kind == UNKNOWN_KEY and len(path) == 1 and path[0] in TRIAL_FIELDS:
        return source.problem(path, "unknown key here; it stands under trial")
    if kind in (PROBLEM, UNKNOWN_KEY):
        fields = source.data.get("fields")
        if kind == UNKNOWN_KEY and path[:1] == ("tune",) and isinstance(fields, dict) and path[-1] in fields:
            return source.problem(path, f"is declared as {fields[path[-1]]}; numbers are tuned")
        undeclared = kind == UNKNOWN_KEY and "trainer" in source.data and path[0] in _OF_A_TRIAL
        return source.problem(path + context["path"], context["message"] + _DECLARE * undeclared)
    if kind == "missing":
        return source.problem(path, "missing; the field has no default")
    return source.problem(path, refused_by_pydantic(details, _PATTERNS))
