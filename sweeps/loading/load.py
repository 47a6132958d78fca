"""From a file to a valid sweep: everything is checked, and every problem has its line."""

from typing import Any

from pydantic import TypeAdapter, ValidationError

from scalevec.sweeps.errors import Path, Problem, SweepError, refused, refused_by_pydantic
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from scalevec.sweeps.loading.checks import problems_of
from scalevec.sweeps.plugins.locate import Plugin, PluginError, find
from scalevec.sweeps.plugins.registered import register
from scalevec.sweeps.sections.corpus import PACKAGE_PATTERN
from scalevec.sweeps.sections.entries import LABEL_PATTERN, PROBLEM, UNKNOWN_KEY
from scalevec.sweeps.sections.schema import MODULE_PATTERN, NAME_PATTERN, Sweep
from scalevec.sweeps.sections.sweep_model import sweep_model
from scalevec.sweeps.sections.trainer import FIELD_PATTERN, FUNCTION_PATTERN
from scalevec.sweeps.yaml_source import SweepSource

_OF_A_TRIAL = ("trial", "ladder", "arms", "grid", "zip", "tune")
_DECLARE = "; a field of the trainer's own is declared under fields, with its type"
_PATTERNS = {
    FIELD_PATTERN: "a letter, then letters, digits or _",
    FUNCTION_PATTERN: "package.module:function",
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
        raise SweepError(
            _problem(source, details) for details in wrong if not _is_of_a_declaration(source, details)
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
    declared = source.data.get("fields")
    is_declared = isinstance(declared, dict) and details["loc"][-1] in declared
    return is_declared and details["type"] == UNKNOWN_KEY and "trainer" in source.data


def _problem(source: SweepSource, details: Any) -> Problem:
    """What pydantic found, in our words and with its line."""
    kind, context = details["type"], details.get("ctx", {})
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    if kind in (PROBLEM, UNKNOWN_KEY):
        undeclared = kind == UNKNOWN_KEY and "trainer" in source.data and path[0] in _OF_A_TRIAL
        return source.problem(path + context["path"], context["message"] + _DECLARE * undeclared)
    if kind == "missing":
        return source.problem(path, "missing; the field has no default")
    return source.problem(path, refused_by_pydantic(details, _PATTERNS))
