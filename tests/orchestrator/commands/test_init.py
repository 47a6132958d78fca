"""scalevec init: sweeps from templates."""

import json
import re
from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.errors import Exit
from support import CHECKOUT, assert_refused, succeeded

TEMPLATES = CHECKOUT / "sweeps" / "templates"


@pytest.fixture
def init(scalevec, tmp_path):
    """The sweep that ``init`` wrote as data, and its summary."""

    def write(*arguments: str) -> tuple[dict, dict]:
        (tmp_path / "my-sweep.yaml").unlink(missing_ok=True)
        done = succeeded(scalevec("init", "--json", *arguments))
        return yaml.safe_load((tmp_path / "my-sweep.yaml").read_text()), json.loads(done.stdout)

    return write


@pytest.mark.parametrize("name", sorted(path.stem for path in TEMPLATES.glob("*.yaml")))
def test_each_template_is_a_sweep_whose_rates_are_extrapolated_from_two_rungs(init, name):
    written, summary = init("--from", name)
    ladder = sweeps.loads(yaml.safe_dump(written), look_for_files=False).ladder
    assert written["tune"]["rungs"] == [rung.name for rung in ladder[:2]]
    assert summary["next"] == ["scalevec plan my-sweep.yaml", "scalevec run my-sweep.yaml"]


@pytest.mark.parametrize("name", ["quickstart", "own-trainer"])
def test_what_init_wrote_can_be_planned(init, scalevec, name):
    init("--from", name)
    assert "trials, 0 of them done" in succeeded(scalevec("plan", "my-sweep.yaml")).stdout


def test_with_data_the_corpus_is_the_largest_kind_of_text_there(init, tmp_path):
    (tmp_path / "texts [1]" / "a").mkdir(parents=True)
    (tmp_path / "texts [1]" / "a" / "one.md").write_text("text " * 10_000)
    (tmp_path / "texts [1]" / "few.txt").write_text("text")
    sweep, _ = init("--data", "texts [1]")
    assert sweep["corpus"]["source"] == "text"
    loaded = sweeps.load(tmp_path / "my-sweep.yaml")
    assert [path.name for path in loaded.corpus_files()] == ["one.md"]


def test_no_sweep_file_is_overwritten_and_nothing_is_written_beside_it(scalevec, tmp_path):
    (tmp_path / "my-sweep.yaml").write_text("mine")
    done = scalevec("init", "--from", "own-trainer")
    assert_refused(done, Exit.INVALID_INPUT, "my-sweep.yaml exists and is not overwritten")
    assert (tmp_path / "my-sweep.yaml").read_text() == "mine"
    assert len(list(tmp_path.glob("[mt]*.*"))) == 1


@pytest.mark.parametrize("arguments", [(), ("-o", "lab/scan.yaml")])
def test_beside_a_script_of_ones_own_a_sweep_file_for_that_script_is_written(scalevec, tmp_path, arguments):
    path = tmp_path / (arguments[-1] if arguments else "my-sweep.yaml")
    path.parent.mkdir(exist_ok=True)
    path.with_name("train.py").write_text("print('my own')")
    done = succeeded(scalevec("init", "--from", "own-trainer", *arguments))
    assert "train.py is there and stays as it is" in done.stderr
    assert path.with_name("train.py").read_text() == "print('my own')"
    assert "train.py" in yaml.safe_load(path.read_text())["trainer"]["command"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "empty"), "--data is empty, which has no text"),
        (("--data", "nowhere"), "does not exist"),
        (("--data", "empty", "--from", "own-trainer"), "--data is for our own loop"),
        (("--from", "qickstart"), "nearest: 'quickstart'"),
    ],
)
def test_what_cannot_be_is_refused(scalevec, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    assert_refused(scalevec("init", *arguments), Exit.INVALID_INPUT, message)


def test_comments_stay_where_they_are_and_the_name_is_that_of_the_file(scalevec, tmp_path):
    assert scalevec("init", "-o", "my own.yaml").returncode == Exit.DONE
    template = (TEMPLATES / "quickstart.yaml").read_text()
    written = (tmp_path / "my own.yaml").read_text()
    expected = [line.rfind(" #") for line in template.splitlines()]
    assert [line.rfind(" #") for line in written.splitlines()] == expected
    assert yaml.safe_load(written)["name"] == "my-own"


def test_the_example_of_the_page_on_sweep_files_is_what_init_begins_with():
    page = (CHECKOUT / "docs" / "sweep-file.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    _, _, template = (TEMPLATES / "quickstart.yaml").read_text(encoding="utf-8").partition("\n")
    assert example == template


def test_an_editor_knows_the_schema_of_what_init_wrote(scalevec, tmp_path):
    assert scalevec("init").returncode == Exit.DONE
    first, _, _ = (tmp_path / "my-sweep.yaml").read_text().partition("\n")
    _, _, schema = first.partition("# yaml-language-server: $schema=")
    assert json.loads(Path(schema).read_text()) == json.loads(json.dumps(sweeps.json_schema()))
