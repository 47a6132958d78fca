"""scalevec init: sweeps from templates, sized for this machine and this text."""

import json
import re
from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.commands.run import sizing
from scalevec.orchestrator.commands.run.sizing import SCALES, TEMPLATES, edited
from scalevec.orchestrator.costs import estimates
from scalevec.orchestrator.errors import Exit
from support import CHECKOUT

NAMES = sorted(SCALES)


@pytest.fixture(autouse=True)
def _of_this_machine(tmp_path, monkeypatch):
    """Two cores, no GPU, nothing measured."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sizing, "usable_cpus", lambda: 2)


@pytest.fixture
def init(scalevec, tmp_path):
    """The sweep that ``init`` wrote as data, and its summary."""

    def write(*arguments: str) -> tuple[dict, dict]:
        (tmp_path / "my-sweep.yaml").unlink(missing_ok=True)
        done = scalevec("init", "--json", *arguments)
        assert done.returncode == Exit.DONE, done.stderr
        return yaml.safe_load((tmp_path / "my-sweep.yaml").read_text()), json.loads(done.stdout)

    return write


OF_THE_SAME_SCALES = ("ladder", "optimizer")
"""As the quickstart: planning them all takes long."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in OF_THE_SAME_SCALES else ()) for name in NAMES],
)
def test_each_template_is_planned_to_end_in_its_time_and_more_time_makes_a_larger_sweep(init, scalevec, name):
    seconds = []
    for minutes in (4, 20):
        written, summary = init("--from", name, "--minutes", str(minutes))
        assert summary["seconds_given"] == 60 * minutes >= summary["seconds"]
        ladder = sweeps.loads(yaml.safe_dump(written), look_for_files=False).ladder
        assert written["tune"]["rungs"] == [
            rung.name for rung in ladder[:2]
        ]  # so that rates are extrapolated
        seconds.append(summary["seconds"])
    assert seconds == sorted(seconds)
    plan = scalevec("plan", "my-sweep.yaml")
    assert plan.returncode == Exit.DONE, plan.stderr
    assert f"{summary['trials']} trials, 0 of them done" in plan.stdout
    assert "this design detects a difference" in plan.stdout
    assert summary["next"] == ["scalevec plan my-sweep.yaml", "scalevec run my-sweep.yaml"]


def test_every_template_is_offered_and_none_else():
    assert {path.stem for path in TEMPLATES.glob("*.yaml")} == set(NAMES)


def test_on_a_faster_machine_the_sweep_is_larger(init, monkeypatch):
    (slow, _) = init("--minutes", "6")
    monkeypatch.setitem(estimates.ASSUMED_FLOPS_PER_S, "cpu", 2e11)
    (fast, _) = init("--minutes", "6")
    assert len(fast["ladder"]) > len(slow["ladder"])


def test_with_data_the_corpus_is_the_largest_kind_of_text_there(init, tmp_path):
    (tmp_path / "texts [1]" / "a").mkdir(parents=True)
    (tmp_path / "texts [1]" / "a" / "one.md").write_text("text " * 10_000)
    (tmp_path / "texts [1]" / "few.txt").write_text("text")
    sweep, _ = init("--data", "texts [1]")
    assert sweep["corpus"]["source"] == "text"
    loaded = sweeps.load(tmp_path / "my-sweep.yaml")
    assert [path.name for path in loaded.corpus_files()] == ["one.md"]


def test_a_short_text_gets_a_small_sweep_and_a_warning(scalevec, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "a"}\n' * 1000)
    done = scalevec("init", "--data", "data", "--minutes", "1000")
    assert "some trials see it more than once" in done.stderr
    sweep = yaml.safe_load((tmp_path / "my-sweep.yaml").read_text())
    assert (sweep["corpus"]["source"], sweep["tokens_per_parameter"]) == ("jsonl", 2)


@pytest.mark.slow
def test_with_gpus_and_enough_text_trials_run_on_them(init, tmp_path, monkeypatch, gpus_of_torch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    gpus_of_torch(2)
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "a.txt").open("wb") as file:
        file.truncate(100_000_000)
    sweep, summary = init("--data", "data")
    assert (summary["at_a_time"], sweep["resources"]["default"]["gpus"]) == (2, 1)
    assert sweep["tune"]["rungs"] == [
        rung.name for rung in sweeps.load(tmp_path / "my-sweep.yaml").ladder[:2]
    ]


def test_no_sweep_file_is_overwritten_and_nothing_is_written_beside_it(scalevec, tmp_path):
    (tmp_path / "my-sweep.yaml").write_text("mine")
    done = scalevec("init", "--from", "own-trainer")
    assert done.returncode == Exit.INVALID_INPUT
    assert "my-sweep.yaml exists and is not overwritten" in done.stderr
    assert (tmp_path / "my-sweep.yaml").read_text() == "mine"
    assert len(list(tmp_path.glob("[mt]*.*"))) == 1


@pytest.mark.parametrize("arguments", [(), ("-o", "lab/scan.yaml")])
def test_beside_a_script_of_ones_own_a_sweep_file_for_that_script_is_written(scalevec, tmp_path, arguments):
    path = tmp_path / (arguments[-1] if arguments else "my-sweep.yaml")
    path.parent.mkdir(exist_ok=True)
    path.with_name("train.py").write_text("print('my own')")
    done = scalevec("init", "--from", "own-trainer", *arguments)
    assert done.returncode == Exit.DONE, done.stderr
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
    done = scalevec("init", *arguments)
    assert done.returncode == Exit.INVALID_INPUT
    assert message in done.stderr


def test_comments_stay_where_they_are_and_the_name_is_that_of_the_file(scalevec, tmp_path):
    assert scalevec("init", "-o", "my own.yaml").returncode == Exit.DONE
    template = (TEMPLATES / "quickstart.yaml").read_text()
    written = (tmp_path / "my own.yaml").read_text()
    assert [line.rfind(" #") for line in written.splitlines()] == [
        line.rfind(" #") for line in template.splitlines()
    ]
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


@pytest.mark.slow
def test_a_sweep_of_init_runs_to_its_verdict(scalevec, tmp_path, text_files):
    assert (
        scalevec("init", "--from", "optimizer", "--data", str(text_files), "--minutes", "1").returncode == 0
    )
    path = tmp_path / "my-sweep.yaml"
    toy = {"ladder": "[{name: tiny-25k, width: 16, layers: 1}]", "tokens_per_parameter": "2"}
    toy |= {"  learning_rate": "[0.01, 0.02]", "  rungs": "[tiny-25k]", "  extend": "0"}
    path.write_text(edited(path.read_text(), toy).replace("bpe: 1024", "bpe: 300"))
    run = scalevec("run", "my-sweep.yaml")
    assert run.returncode == Exit.DONE, run.stderr
    assert "muon" in scalevec("compare", "my-sweep").stdout
