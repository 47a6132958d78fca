"""What can be said of a sweep's ``trainer`` by looking at its other sections and at the files beside it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path as FilePath
from string import Formatter
from typing import Any

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.errors import Path, refused, shown, unknown
from scalevec.sweeps.ladders import TOKENS
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.sections.trainer import KINDS, PLAIN_TYPES, TrainerSection, types_of
from scalevec.sweeps.trainers import formula
from scalevec.sweeps.trainers.any_trial import OF_AN_ATTEMPT
from scalevec.sweeps.trainers.command import OF_A_BUDGET, names_in, placeholders_of
from scalevec.sweeps.trainers.source_files import SCRIPTS, files_of_words, matching, with_imports

_Finding = tuple[Path, str]
_OF_OUR_LOOP = ("corpus", "optimizers", "schedules", "measure")
_TEXTS = ("optimizer", "schedule", "architecture", "corpus", "precision")
TYPES_OF_COLUMNS = PLAIN_TYPES | dict.fromkeys(_TEXTS, str)
_CODE = "name the code under files, or give a code_version: trials of changed code would count as done"
CHOSEN = 1.0234
"""Times a value that is tried, a rate that tuning may choose."""
SHORTEST = 6
"""Characters of a secret, as ``results.masking`` has it."""
_SECRET = re.compile(r"SECRET|PASSW|CREDENTIAL|(^|[_.])((API|ACCESS|AUTH|PRIVATE)?KEY|(AUTH)?TOKEN|PASS)$")
"""Names of secrets, by whole words: ``api_key``, but no ``tokens`` and no ``monkey``."""
_IN_URL = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
_NO_SECRET = re.compile(r"\{\w+\}|[<\[(/~.].*|[-+\d.eE]+")
"""A placeholder, a special token of a tokenizer, a path, a number."""
_INSTEAD = (
    "a sweep is kept with its results and shown by reports; let the trainer read an environment variable, "
    "which the profile's setup may export"
)


def trainer_problems(sweep: Sweep) -> Iterator[_Finding]:
    """What is wrong with the trainer, and with sections that go with it or do not."""
    if sweep.trainer is None:
        for name in ("fields", "n_params"):
            if getattr(sweep, name):
                yield (name,), "belongs to a trainer, which this sweep does not have"
        return
    for name in _OF_OUR_LOOP:
        if name in sweep.model_fields_set:
            yield (name,), "is of our own training loop; a trainer gets what it needs as fields"
    for name, kind in sweep.fields.items():
        expected = TYPES_OF_COLUMNS.get(name, KINDS[kind])
        if KINDS[kind] is not expected:
            yield ("fields", name), refused(kind, f"{expected.__name__}, as results have it")
    yield from _form(sweep.trainer)
    try:
        yield from _placeholders(sweep, sweep.trainer)
    except ConfigurationError as error:
        yield ("trainer", "command"), refused(error.value, error.allowed)


def _form(trainer: TrainerSection) -> Iterator[_Finding]:
    if not (trainer.metrics or trainer.pattern or trainer.result):
        allowed = "metrics (its log), result (a JSON file) or pattern (lines that it prints)"
        yield ("trainer",), f"nothing says where the command writes its loss; allowed: {allowed}"
    if trainer.metrics and trainer.pattern:
        yield ("trainer", "pattern"), "metrics says where the rows are; allowed: one of the two"
    if trainer.pattern is not None:
        yield from _pattern(trainer, trainer.pattern)
    if trainer.n_params and not trainer.result:
        yield ("trainer", "n_params"), "is a key of the result; name its file under result"
    if trainer.resume and len(trainer.resume) == 1 and re.match(r"-[^\s=]+\s+\S", trainer.resume[0]):
        allowed = "a list, [--resume, '{out}/last.pt']: one text is one word of the command"
        yield ("trainer", "resume"), refused(trainer.resume[0], allowed)
    if trainer.resume and trainer.checkpoint is None:
        yield ("trainer", "resume"), "is added where there is a checkpoint; name its files under checkpoint"
    if trainer.unit == "bits-per-byte" and trainer.bytes_per_token is None:
        yield ("trainer", "unit"), "bits-per-byte needs bytes_per_token, to give nats per token"


def _pattern(trainer: TrainerSection, pattern: str) -> Iterator[_Finding]:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        yield ("trainer", "pattern"), refused(pattern, f"a regular expression of Python ({error})")
        return
    for key in (trainer.step, *(() if trainer.result else (trainer.loss,))):
        if key not in groups:
            yield ("trainer", "pattern"), refused(pattern, f"one with a group (?P<{key}>...)")


def _placeholders(sweep: Sweep, trainer: TrainerSection) -> Iterator[_Finding]:
    known = [*types_of(dict(sweep.fields)), *OF_A_BUDGET, *OF_AN_ATTEMPT]
    for list_name in ("command", "resume"):
        for position, word in enumerate(getattr(trainer, list_name) or ()):
            for name in placeholders_of(word):
                if name not in known:
                    what = unknown(name, known, "no such field")
                    yield ("trainer", list_name, position), f"{{{name}}}: {what}"
    of_size = formula.names_in(sweep.n_params) if sweep.n_params else ()
    for name in of_size:
        if name not in known:
            yield ("n_params",), f"{name}: {unknown(name, known, 'no such field')}"
    for path, names in _varied(sweep):
        for name in names:
            if name in of_size and path[0] in ("arms", "tune"):
                yield (*path, name), "the formula n_params rests on it; give n_params at the rungs instead"
    used = set(names_in(trainer.command))
    if "trial_json" in used:
        return
    if (file := trainer.metrics or trainer.result) and "out" not in used:
        yield ("trainer", "command"), f"has no {{out}}, below which {file} is looked for; add {{out}}"
    several = max(len(sweep.seeds), len(sweep.tune.seeds) if sweep.tune else 0) > 1
    if several and not used & {"seed", "seed_index"}:
        yield (("trainer", "command"), "has no {seed}, so that all seeds would be one run; add {seed}")
    yield from _unused(sweep, used)
    yield from _formats(sweep, trainer)


def _varied(sweep: Sweep) -> list[tuple[Path, list[str]]]:
    """What varies fields beside the ladder, and which."""
    return [
        *((("arms", label), list(fields.given())) for label, fields in sweep.arms.items()),
        (("grid",), list(sweep.grid.given())),
        (("zip",), list(sweep.zip.given())),
        (("tune",), list(sweep.tune.lists()) if sweep.tune else []),
    ]


def _unused(sweep: Sweep, used: set[str]) -> Iterator[_Finding]:
    """A field that is varied and that the command does not get would vary nothing."""
    for path, names in _varied(sweep):
        for name in names:
            if name not in used and not (name == "batch_tokens" and "steps" in used):
                yield (*path, name), f"the command has no {{{name}}}, so that this would change nothing"
    told = used | (set(formula.names_in(sweep.n_params)) if sweep.n_params and "n_params" in used else set())
    sizes = [{**rung.given(), "rung": rung.given().get("name")} for rung in sweep.ladder]
    if len(sizes) > 1 and not told & {"n_params", *(name for size in sizes for name in size)}:
        yield ("ladder",), "the command gets no field of the rungs, so that all of them would be one size"
    elif not told & set(OF_A_BUDGET) or sweep.budget_kind == TOKENS:
        words = [{name: size.get(name) for name in (*told, "tokens", "batch_tokens")} for size in sizes]
        for position, word in enumerate(words):
            if word in words[:position]:
                first = sizes[words.index(word)]["name"]
                yield ("ladder", position), f"the command gets no other words than at {first}, another size"


def _formats(sweep: Sweep, trainer: TrainerSection) -> Iterator[_Finding]:
    """A format that writes values of a field alike would record what was not trained."""
    given: defaultdict[str, list[Any]] = defaultdict(list)
    for fields in (*sweep.arms.values(), *sweep.ladder):
        for name, value in fields.given().items():
            given[name].append(value)
    tuned = sweep.tune.lists() if sweep.tune else {}
    for name, values in (*sweep.grid.given().items(), *sweep.zip.given().items(), *tuned.items()):
        chosen = [CHOSEN * value for value in values if name in tuned and isinstance(value, float)]
        given[name] += [*values, *chosen]
    for position, word in enumerate(trainer.command):
        for _, field, form, _ in Formatter().parse(word):
            values = (
                {value for value in given[field or ""] if isinstance(value, int | float)} if form else set()
            )
            if field and form and len({_written(value, form) for value in values}) < len(values):
                what = f"{shown(word)} writes several values alike, and what is recorded would not be trained"
                yield ("trainer", "command", position), f"{what}; {{{field}}} gives all digits"


def _written(value: float, form: str) -> str:
    try:
        return format(value, form)
    except ValueError:  # said elsewhere
        return str(value)


def missing_code(sweep: Sweep) -> Iterator[_Finding]:
    """Files of the trainer that are not there, and a trainer of whose code nothing is known."""
    trainer, folder = sweep.trainer, sweep.source.folder
    if trainer is None:
        return
    where = f"no such file (looked in {folder}, the sweep file's folder)"
    for position, pattern in enumerate(trainer.files or ()):
        if not matching(folder, pattern):
            yield ("trainer", "files", position), f"{shown(pattern)}: {where}"
    words = [word for word in trainer.command if "{" not in word]
    try:
        files_named = [*files_of_words(folder, words), *with_imports(folder, (), words, unasked=False)]
    except ConfigurationError as error:
        yield ("trainer",), refused(error.value, error.allowed)
        return
    for word in words:
        if word.endswith(SCRIPTS) and not word.startswith("-") and word not in files_named:
            beside = "name it as seen from the sweep file's folder" if FilePath(word).is_file() else where
            yield ("trainer", "command"), f"{shown(word)}: {beside}"
    is_known = files_named or trainer.files or trainer.code_version is not None
    if not is_known and all("{" in word or not word.endswith(SCRIPTS) for word in words):
        yield ("trainer", "command"), f"no argument is a file beside the sweep file; {_CODE}"


def secrets_in(sweep: Sweep) -> Iterator[_Finding]:
    """Yield each field and word of a command that holds a secret; the message does not say which."""
    for name, kind in sweep.fields.items():
        if kind == "str" and is_secret(name):
            yield ("fields", name), f"is called like a secret: {_INSTEAD}, or give the field another name"
    for part in ("command", "resume"):
        words = (getattr(sweep.trainer, part) or ()) if sweep.trainer else ()
        for position, (before, word) in enumerate(pairwise(("", *words))):
            if option := _name_of_secret(before, word):
                yield ("trainer", part, position), f"holds a secret ({option}): {_INSTEAD}"


def is_secret(name: str) -> bool:
    """Whether what is called so is a secret: an option, a variable or a field."""
    return _SECRET.search(name.lstrip("-").replace("-", "_").upper()) is not None


def _name_of_secret(before: str, word: str) -> str | None:
    """What the secret in ``word`` is called, after the word ``before``; None where there is none."""
    if (in_url := _IN_URL.search(word)) and not _NO_SECRET.fullmatch(in_url[1]):
        return "a password in a URL"
    name, sign, value = word.partition("=")
    if not sign:
        name, value = before if before.startswith("-") and "=" not in before else "", word
    is_value = len(value) >= SHORTEST and not value.startswith("-") and not _NO_SECRET.fullmatch(value)
    return name.lstrip("-") if is_value and is_secret(name) else None
