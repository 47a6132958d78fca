"""The law of a plugin is kept with the sweep: its results are read where the plugin is not."""

import json

import pytest

from scalevec.analysis.laws import law_named
from scalevec.orchestrator.sources.records import compare_section
from scalevec.results.sweep_folder import SweepFolder

DECLARED = {
    "module": "mylab.arms",
    "source": "f" * 64,
    "laws": {"mine": {"formula": "E + A/N^a", "source": "me"}},
}


@pytest.fixture
def folder(tmp_path, own_registries) -> SweepFolder:
    folder = SweepFolder.of(tmp_path, "plugged")
    folder.write_plugins([DECLARED])
    folder.write_resolved({"compare": {"law": "mine"}})
    return folder


def test_the_law_is_known_from_what_was_kept(folder):
    assert compare_section(folder) == {"law": "mine"}
    assert law_named("mine").variables == ("N",)


@pytest.mark.parametrize(
    "damaged",
    [
        {"mine": {"formula": "E + A/Z"}},
        {"mine": {"formula": 3, "source": "me"}},
        {"mine": 1},
        {"power": {"formula": "E", "source": ""}},
    ],
)
def test_a_damaged_one_is_said_and_the_defaults_are_taken(folder, damaged, capsys):
    folder.plugins_path.write_text(json.dumps([{**DECLARED, "laws": damaged}]))
    assert compare_section(folder) == {}
    assert "plugins.json: its laws cannot be used" in " ".join(capsys.readouterr().err.split())
