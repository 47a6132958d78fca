"""The model of a trial, taken home: exported, asked to write, measured on other text."""

import json
import math
import shutil

import pytest
import torch

import scalevec
from scalevec.model.train.evaluation import evaluate
from support import assert_refused, filled_once, finished, run_python, succeeded, two_arms, umask

pytestmark = pytest.mark.slow

LOADED = """
import sys
sys.modules["scalevec"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in folders:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)])
    text = model.generate(ids, max_new_tokens=50, do_sample=False)
    with torch.no_grad():
        torch.save({"ids": ids, "logits": model(ids).logits, "text": text}, folder + "/answer.pt")
"""


@pytest.fixture(scope="session")
def kept(tmp_path_factory, text_files):
    """A folder with two trials, baseline and unified, whose weights were kept."""
    sweep = two_arms("kept", text_files, tokens_per_parameter=8, width=16, layers=1) + "keep: weights\n"
    return filled_once(tmp_path_factory, "kept-weights", lambda folder: finished(folder, sweep))


@pytest.fixture
def runs(kept, tmp_path):
    shutil.copytree(kept / "runs", tmp_path / "runs")
    return scalevec.open(tmp_path / "runs")


@pytest.fixture
def trials(runs) -> list[str]:
    return sorted(runs.results("kept")["trial_id"])


def test_a_model_in_python_is_the_one_that_was_trained(runs, trials):
    for name in trials:
        trial = runs.trial(name[:8])
        assert trial.tokenizer().decode(trial.tokenizer().encode("über def main")) == "über def main"
        tokens = trial.corpus().split("test")
        loss = evaluate(trial.model(), tokens, trial.specification.sequence_length, 8).loss
        assert loss == pytest.approx(trial.result()["loss"], rel=1e-6)


def test_an_exported_model_loads_elsewhere_and_writes_what_ours_writes(runs, trials, command, tmp_path):
    pytest.importorskip("transformers")
    prompt, folders = "def main(", []
    for name in trials:
        folders.append(str(tmp_path / name[:8]))
        succeeded(command("export", name[:8], "-o", folders[-1]))
    succeeded(run_python(f"folders, prompt = {folders!r}, {prompt!r}{LOADED}"))
    for name, folder in zip(trials, folders, strict=True):
        model, answer = runs.trial(name).model(), torch.load(f"{folder}/answer.pt")
        with torch.no_grad():
            ours = model(answer["ids"])
        torch.testing.assert_close(answer["logits"], ours, rtol=1e-6, atol=1e-5)
        # Of two best logits that hardly differ either may be chosen.
        text = answer["text"]
        with torch.no_grad():
            logits = model(text[:, :-1])[0, answer["ids"].shape[1] - 1 :]
        chosen = logits.gather(1, text[0, answer["ids"].shape[1] :, None])[:, 0]
        assert len(chosen) == 50
        torch.testing.assert_close(chosen, logits.max(1).values, rtol=0, atol=1e-4)


def test_a_card_has_the_trials_numbers_and_how_to_load_it_for_whom_the_umask_says(trials, command, tmp_path):
    with umask(0o027):
        succeeded(command("export", trials[0][:8], "-o", tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert trials[0] in card
    assert "AutoModelForCausalLM.from_pretrained(FOLDER" in card
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o640}


def test_the_loss_on_other_text_has_bits_per_byte(trials, command, tmp_path):
    (tmp_path / "text.txt").write_text("def main():\n    return 1\n" * 20)
    answer = succeeded(command("evaluate", trials[0][:8], tmp_path / "text.txt", "--json"))
    record = json.loads(answer.stdout)
    expected = pytest.approx(record["loss"] * record["tokens"] / record["bytes"] / math.log(2))
    assert record["bits_per_byte"] == expected


def test_weights_that_were_not_kept_are_named_with_what_to_do(runs, trials, command, tmp_path):
    shutil.rmtree(runs.trial(trials[0]).checkpoints_path)
    refused = command("export", trials[0][:8], "-o", tmp_path / "out")
    remedy = "write keep: weights in runs/sweeps/kept/sweep.yaml, then: rm -r "
    assert_refused(refused, 2, remedy, "&& scalevec run kept --runs runs")
    assert not (tmp_path / "out").exists()


def test_a_damaged_model_is_named_with_what_trains_it_again(runs, trials, command):
    (path,) = runs.trial(trials[0][:8]).path.glob("checkpoints/*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    refused = command("export", trials[0][:8], "-o", "out")
    assert_refused(refused, 2, f"{path.name} is damaged (", "to train the model again: rm -r ")


def test_a_trial_that_is_not_completed_is_refused_with_the_line_that_goes_on(runs, trials, command, tmp_path):
    diverged, cancelled = map(runs.trial, trials)
    result = json.loads(diverged.result_path.read_text()) | {"status": "diverged"}
    diverged.result_path.write_text(json.dumps(result))
    cancelled.result_path.unlink()
    cancelled.append_event("cancelled")
    to_see = f"to see where: scalevec explain {trials[0][:12]}"
    for name, line in zip(trials, (to_see, "to have one: scalevec run kept --runs runs"), strict=True):
        assert_refused(command("export", name[:8], "-o", tmp_path / "out"), 2, line)


def test_a_model_that_transformers_cannot_compute_is_refused(trials, command, tmp_path, monkeypatch):
    from scalevec.model.export import hugging_face

    def refuse(model: object, sequence_length: int) -> None:
        raise hugging_face.ExportError("attention is 'window'")

    monkeypatch.setattr(hugging_face, "exported", refuse)
    refused = command("export", trials[0][:8], "-o", tmp_path / "out")
    assert (refused.returncode, (tmp_path / "out").exists()) == (2, False)
    assert f"trial {trials[0][:12]}: attention is 'window'" in refused.stderr


def test_an_export_never_replaces_what_is_there(trials, command, tmp_path):
    (tmp_path / "out").mkdir()
    assert_refused(command("export", trials[0][:8], "-o", tmp_path / "out"), 2, "is there already")


def test_an_export_whose_folder_another_makes_meanwhile_is_refused(trials, command, tmp_path, monkeypatch):
    def card(*_: object) -> str:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").touch()
        return ""

    monkeypatch.setattr("scalevec.orchestrator.commands.models.export._card", card)
    refused = command("export", trials[0][:8], "-o", "out")
    assert_refused(refused, 2, "another process has just made it; nothing was written")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theirs"]


def test_an_empty_text_is_refused(trials, command, tmp_path):
    (tmp_path / "empty.txt").touch()
    assert command("evaluate", trials[0][:8], tmp_path / "empty.txt").returncode == 2
