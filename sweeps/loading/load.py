"""From a file to a valid sweep: everything is checked, and every problem has its line."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError

from scalevec.model.optimization import COMMON_OPTIONS, OPTIMIZERS, SCHEDULES
from scalevec.sweeps.errors import Path, Problem, SweepError, refused, refused_by_pydantic, unknown
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from scalevec.sweeps.fields import WARMUP_FRACTION
from scalevec.sweeps.loading.checks import problems_of
from scalevec.sweeps.loading.named_plugins import plugins_of
from scalevec.sweeps.sections.corpus import PACKAGE_PATTERN
from scalevec.sweeps.sections.entries import LABEL_PATTERN, Section, ValidatedAs
from scalevec.sweeps.sections.foreign_sweep import sweep_model
from scalevec.sweeps.sections.rungs import GENERATED, LISTED
from scalevec.sweeps.sections.schema import MODULE_PATTERN, NAME_PATTERN, Sweep, sweep_with
from scalevec.sweeps.sections.trainer import FIELD_PATTERN, FUNCTION_PATTERN
from scalevec.sweeps.yaml_source import SweepSource

_NO_PLACES = ("[key]", LISTED, GENERATED)
_NAMED_LISTS: dict[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "optimizers": ((*COMMON_OPTIONS["optimizer"],), OPTIMIZERS),
    "schedules": ((*COMMON_OPTIONS["schedule"], WARMUP_FRACTION), SCHEDULES),
}
"""Lists whose entries have a name that says which further fields they take."""
_OF_A_TRIAL = ("trial", "ladder", "arms", "grid", "zip", "tune")
_DECLARE = "; a field of the trainer's own is declared under fields, with its type"
_PATTERNS = {
    FIELD_PATTERN: "a letter, then letters, digits or _",
    FUNCTION_PATTERN: "package.module:function",
    LABEL_PATTERN: "1 to 40 letters, digits or signs of . _ + -",
    NAME_PATTERN: "1 to 80 letters, digits or signs of . _ -",
    PACKAGE_PATTERN: "a distribution, NAME or NAME==VERSION",
    MODULE_PATTERN: "the name of a module or an entry point, such as mylab.arms; never a path",
}


def read(source: SweepSource, *, look_for_files: bool = True) -> Sweep:
    """The sweep that ``source`` describes. Raises :class:`SweepError` with all that is wrong.

    Files of the corpus that are not there are wrong too, unless nobody shall look for them.
    """
    if not isinstance(source.data, dict):
        allowed = "a mapping of fields (name, ladder, arms)"
        raise SweepError([source.problem((), refused(source.data, allowed))])
    plugins, options = plugins_of(source)
    kind = sweep_model(source.data) or sweep_with(options)
    try:
        sweep = kind.model_validate(source.data)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        raise SweepError(
            _problem(source, kind, details) for details in wrong if not _is_of_a_declaration(source, details)
        ) from None
    sweep._source, sweep._plugins = source, plugins
    if problems := problems_of(sweep, look_for_files=look_for_files):
        raise SweepError(problems)
    expand(sweep, _any_corpus(sweep))
    return sweep


def _any_corpus(sweep: Sweep) -> CorpusFacts:
    """A corpus that is large enough for any sweep, to try the expansion with."""
    return CorpusFacts("", sweep.corpus.vocabulary, 2**200)


def _is_of_a_declaration(source: SweepSource, details: Any) -> bool:
    """Whether a field is unknown only since ``fields`` declares it wrongly, which is found too."""
    declared = source.data.get("fields")
    is_declared = isinstance(declared, dict) and details["loc"][-1] in declared
    return is_declared and details["type"] == "extra_forbidden" and "trainer" in source.data


def _problem(source: SweepSource, sweep: type[Sweep], details: Any) -> Problem:
    """What pydantic found, in our words and with its line."""
    kind, context = details["type"], details.get("ctx", {})
    path: Path = tuple(part for part in details["loc"] if part not in _NO_PLACES)
    if kind == "sweep":
        return source.problem(path + context["path"], context["message"])
    if kind == "missing":
        return source.problem(path, "missing; the field has no default")
    if kind == "extra_forbidden":
        known = _options_of_the_named(source.data, path) or _fields_beside(sweep, path)
        undeclared = "trainer" in source.data and path[0] in _OF_A_TRIAL
        return source.problem(path, unknown(path[-1], known, "unknown key") + _DECLARE * undeclared)
    return source.problem(path, refused_by_pydantic(details, _PATTERNS))


def _options_of_the_named(data: Any, path: Path) -> list[str]:
    """The fields of the optimizer or schedule that is named beside ``path``; empty anywhere else."""
    if len(path) != 3 or path[0] not in _NAMED_LISTS:
        return []
    common, registry = _NAMED_LISTS[str(path[0])]
    entry: Any = data[path[0]]
    if isinstance(entry, list):
        entry = entry[int(path[1])]
    name = entry.get("name")
    return ["name", *common, *registry[name].options] if isinstance(name, str) and name in registry else []


def _fields_beside(kind: Any, path: Path) -> list[str]:
    """The fields that the section around ``path`` knows."""
    for part in path[:-1]:
        kind = _inner(kind, part)
    kind = _form(kind, path[-1])
    return [field.alias or name for name, field in kind.model_fields.items()]


def _inner(kind: Any, part: str | int) -> Any:
    """The type of what stands under ``part`` in a value of type ``kind``, without its annotations."""
    kind = _form(kind, part)
    if isinstance(kind, type) and issubclass(kind, Section):
        return _bare(kind.model_fields[str(part)].rebuild_annotation())
    return _bare([inner for inner in get_args(kind) if inner is not ...][-1])


def _form(kind: Any, part: str | int) -> Any:
    """Of a list of sections or one section: the one in which ``part`` can stand; other types as they are."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    forms = [_bare(form) for form in get_args(kind)]
    return next(form for form in forms if isinstance(part, int) == (get_origin(form) is tuple))


def _bare(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        validated = (note.kind for note in kind.__metadata__ if isinstance(note, ValidatedAs))
        return _bare(next(validated, get_args(kind)[0]))
    options = [option for option in get_args(kind) if option is not NoneType]
    return _bare(options[0]) if NoneType in get_args(kind) else kind
