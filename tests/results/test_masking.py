"""Values of secret variables are kept out of what is printed and kept."""

import io
import json

import pytest

from scalevec.orchestrator.progress import note
from scalevec.results.masking import MaskedStream, masked
from scalevec.results.run_directory import RunDirectory


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "HF_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "my_password", "GCP_CREDENTIALS"],
)
def test_a_value_is_masked_by_the_name_of_its_variable(name):
    assert masked("at https://u:s3cr3t-value@host", {name: "s3cr3t-value"}) == "at https://u:***@host"


@pytest.mark.parametrize(
    ("name", "value"), [("TOKENIZERS_PARALLELISM", "falsehood"), ("HOME", "/home/me"), ("SHORT_KEY", "on")]
)
def test_other_and_short_values_stay(name, value):
    assert masked(f"it is {value}", {name: value}) == f"it is {value}"


def test_a_longer_secret_is_masked_before_one_that_it_contains():
    assert masked("abcdefgh", {"A_KEY": "abcdef", "B_KEY": "abcdefgh"}) == "***"


def test_events_environments_streams_and_messages_are_masked(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAB_TOKEN", "hunter2-and-more")
    directory = RunDirectory(tmp_path)
    directory.append_event("pending", "error", error="ValueError: hunter2-and-more")
    directory.write_environment({"attempt": 1, "command": ["train", "--key=hunter2-and-more"], "threads": 1})
    note("no hunter2-and-more here")
    print("nor hunter2-and-more", file=MaskedStream(stream := io.StringIO()))
    kept = directory.events_path.read_text() + directory.environment_path.read_text()
    assert "hunter2" not in kept + capsys.readouterr().err + stream.getvalue()
    assert json.loads(directory.environment_path.read_text())[0]["threads"] == 1
