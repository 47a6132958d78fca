"""A sweep with a plugin is read, checked and given its identity without running a line of the plugin."""

import re
import sys
from dataclasses import replace

import pytest

from plugin_package import ARMS, SWEEP, write_plugin
from scalevec import sweeps
from scalevec.model.identity import semantic_fields, trial_from_fields, trial_id
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from scalevec.sweeps.plugins import locate
from scalevec.sweeps.plugins.locate import find, snapshot_files
from support import CHECKOUT

FACTS = CorpusFacts("ab" * 32, 257, 10**6)


@pytest.fixture(autouse=True)
def _registries(own_registries):
    """What is registered here is forgotten afterwards."""


@pytest.fixture
def folder(tmp_path):
    write_plugin(tmp_path)
    return tmp_path


def loaded(folder, text=SWEEP):
    return sweeps.loads(text.format(text=folder), "s.yaml", folder, look_for_files=False)


def trials(folder, text=SWEEP):
    return {cell.arm: cell.trial(0) for cell in expand(loaded(folder, text), FACTS)}


def refused(folder, text=SWEEP):
    with pytest.raises(sweeps.SweepError) as error:
        loaded(folder, text)
    return str(error.value)


def test_options_have_the_defaults_and_types_of_the_function(folder):
    optimizer = trials(folder)["signs"].optimizer
    assert optimizer.options == {"kappa": 0.8, "shape": "hard"}
    assert optimizer.registered.state_per_parameter == 1
    assert trials(folder)["signs"].schedule.options == {"power": 0.5}
    assert trials(folder)["signs"].model.scale_vectors.plugin == optimizer.plugin


def test_nothing_of_it_runs(folder):
    write_plugin(folder, "raise SystemExit('it ran')\n" + ARMS)
    trials(folder)
    assert "mylab" not in sys.modules


def test_a_change_in_any_file_of_the_package_makes_new_trials_of_those_that_use_it_alone(folder):
    before = trials(folder)
    (folder / "mylab" / "signs.py").write_text("def sign_of(moment, shape):\n    return moment\n")
    after = trials(folder)
    assert trial_id(before["baseline"]) == trial_id(after["baseline"])
    assert trial_id(before["signs"]) != trial_id(after["signs"])
    assert before["signs"].stream == after["signs"].stream


def test_what_a_plugin_imports_from_beside_its_package_is_of_it_and_is_sent_along(folder):
    write_plugin(folder, "import common, json\nfrom tools import deep\n" + ARMS)
    (folder / "tools").mkdir()
    for name in ("common.py", "json.py", "unused.py", "tools/deep.py", "tools/unused.py"):
        (folder / name).write_text("import math\n")
    before = trials(folder)
    plugin = find("mylab.arms", folder)
    beside = [name for name in plugin.files if not name.startswith("mylab/")]
    assert sorted(beside) == ["common.py", "tools/deep.py"]
    assert snapshot_files([plugin])["plugins/common.py"] == b"import math\n"
    for name in ("unused.py", "common.py"):
        (folder / name).write_text("changed = True\n")
        assert (trial_id(before["signs"]) == trial_id(trials(folder)["signs"])) is (name == "unused.py")
    assert trial_id(before["baseline"]) == trial_id(trials(folder)["baseline"])


def test_code_version_stands_for_the_content(folder):
    text = SWEEP.replace("[mylab.arms]", "{{module: mylab.arms, code_version: 3}}")
    before = trials(folder, text)["signs"]
    (folder / "mylab" / "signs.py").write_text("# a comment\n")
    assert trial_id(before) == trial_id(trials(folder, text)["signs"])
    assert semantic_fields(before)["optimizer"]["plugin"]["source"] == "code_version 3"


def test_a_trial_is_read_back_where_the_plugin_is_not_known_or_has_changed(folder):
    trial = trials(folder)["signs"]
    write_plugin(folder, ARMS.replace("kappa", "lambda_"))
    loaded(folder, SWEEP.replace("kappa", "lambda_"))
    fields = semantic_fields(trial)
    assert trial_id(trial_from_fields(fields)) == trial_id(trial)
    fields["optimizer"]["name"] = "never-heard-of"
    assert trial_from_fields(fields).optimizer.options["kappa"] == 0.8
    assert [plugin.module for plugin in trial.plugins] == ["mylab.arms"]


def test_options_are_tuned_and_listed_as_our_own(folder):
    text = SWEEP.replace("optimizer: adamw, schedule: cosine,", "optimizer: sign-momentum,")
    text = text.replace("kappa: 0.8, ", "")
    tuned = text + "tune: {{kappa: [0.8, 0.9, 0.95], seeds: [7]}}\ngrid: {{shape: [hard, soft]}}\n"
    cells = expand(loaded(folder, tuned), FACTS)
    assert {cell.setting["shape"] for cell in cells} == {"hard", "soft"}
    assert cells[0].trial(7, kappa=0.95).optimizer.options["kappa"] == 0.95


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kappa: 1.5", r"s.yaml:9: arms.signs.kappa: 1.5; allowed: a number in [0, 1)"),
        ("shape: round", "arms.signs.shape: 'round'; allowed: hard, soft"),
        ("kappa: high", "arms.signs.kappa: 'high'; allowed: a number"),
    ],
)
def test_options_are_checked_at_their_line(folder, given, message):
    assert message in refused(folder, SWEEP.replace("kappa: 0.8", given))


PROBLEMS = [
    (ARMS.replace('"sign-momentum"', '"adamw"'), "'adamw' is the name of one of scalevec"),
    (ARMS.replace("state=1", "state=len('a')"), "line 29: optimizer: len('a') is computed; write its value"),
    (ARMS.replace("state=1", "state='two'"), "line 29: optimizer: state is 'two'; allowed: a number of zero"),
    (ARMS.replace("kappa: float = 0.9", "kappa: float = 'a'"), "option kappa is 'a'; allowed: a number"),
    (ARMS.replace("groups, config", "groups"), "takes no two arguments before its options"),
    (f"{ARMS}\n\ndef sign_momentum(): ...\n", "optimizer: sign_momentum is defined again at line"),
    (
        ARMS.replace('"(0, inf)"})', '"(0, inf)"}, state=1)'),
        "schedule: _schedule() got an unexpected keyword argument 'state'",
    ),
    (ARMS.replace("kappa: float = 0.9", "kappa"), "option kappa of sign_momentum has no default"),
    (ARMS.replace("[0, 1)", "0 to 1"), "'0 to 1' is no interval like [0, 1)"),
    ("", "declares none of optimizer, schedule, reparameterization, law"),
    (ARMS.replace("kappa", "seeds"), "option 'seeds' means something else"),
    (
        ARMS.replace("power: float = 0.5", "final_fraction='low'").replace('"power": "(0, inf)"', ""),
        "option 'final_fraction' is str of the schedule, elsewhere float",
    ),
]


@pytest.mark.parametrize(("source", "message"), PROBLEMS)
def test_a_plugin_that_cannot_be_read_is_refused_with_the_reason(folder, source, message):
    write_plugin(folder, source)
    message_of = refused(folder)
    assert message_of.startswith("s.yaml:2: plugins[0]: mylab.arms")
    assert message in message_of


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.arms", "no module of that name in"),
        ("mylab.legs", "there is no source file mylab/legs.py"),
        ("../mylab", "never a path"),
        ("json", "the name of a module of Python"),
        ("_ctypes", "has no source file"),
    ],
)
def test_a_name_that_is_no_plugin_is_refused(folder, name, message):
    message_of = refused(folder, SWEEP.replace("mylab.arms", name))
    assert "plugins[0]" in message_of
    assert message in message_of or "name of a module of Python" in message_of


def test_a_link_to_a_folder_within_the_package_is_refused(folder):
    (folder / "mylab" / "data").symlink_to(folder)
    assert "mylab/data is a link to a folder" in refused(folder)


def test_a_package_that_is_a_link_out_of_the_sweeps_folder_is_refused(tmp_path):
    elsewhere = write_plugin(tmp_path / "elsewhere")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mylab").symlink_to(elsewhere)
    assert "leads out of the sweep's folder" in refused(tmp_path / "sweep")


def test_an_installed_package_is_found(folder, tmp_path_factory, monkeypatch):
    beside = loaded(folder).found_plugins[0].identity
    site = tmp_path_factory.mktemp("site")
    (folder / "mylab").rename(site / "mylab")
    monkeypatch.syspath_prepend(site)
    assert loaded(folder).found_plugins[0].identity == beside


def test_arithmetic_of_a_plugin_that_is_not_loaded_is_refused_where_it_would_run(folder):
    from scalevec.model.config import ConfigurationError
    from scalevec.model.scale_vectors import ScaleVector

    with pytest.raises(ConfigurationError, match="whose plugin is loaded"):
        ScaleVector(4, "softplus", "input")


def test_arithmetic_that_does_not_start_at_one_is_refused(monkeypatch):
    from scalevec.model import scale_vectors
    from scalevec.model.config import ConfigurationError
    from scalevec.model.fields import PluginSource
    from scalevec.model.strategies import Reparameterization

    entry = Reparameterization("operator:add", 0.5, 0.75, PluginSource("operator", "f" * 64))
    monkeypatch.setitem(scale_vectors.REPARAMETERIZATIONS, "sum", entry)
    with pytest.raises(ConfigurationError, match="1 where it starts"):
        scale_vectors.ScaleVector(4, "sum", "input")


def test_what_was_sent_stands_before_what_lies_beside_the_sweep(folder, monkeypatch):
    plugin = replace(find("mylab.arms", folder), code_version=3)
    root = folder / "snapshot"
    for name, content in snapshot_files([plugin]).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (folder / "mylab" / "arms.py").write_text("# an edit\n")
    monkeypatch.setattr(locate, "sent_folder", lambda: root / "plugins")
    [sent] = locate.sent_plugins()
    assert (sent.digest, sent.identity) == (plugin.digest, plugin.identity)
    assert find("mylab.arms", folder).digest == plugin.digest


def test_the_example_of_the_documentation_is_a_plugin(folder):
    text = (CHECKOUT / "docs" / "plugins.md").read_text(encoding="utf-8")
    [source] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    [sections] = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    write_plugin(folder, source)
    (folder / "s.yaml").write_text(
        "name: documented\nladder: [tiny-25k, tiny-55k]\narms: {baseline: {}, none: {scale_vectors: none}}\n"
        + sections
    )
    sweep = sweeps.load(folder / "s.yaml", look_for_files=False)
    assert [entry.label for entry in sweep.optimizers] == ["adamw", "sign-momentum(beta=0.95)"]
