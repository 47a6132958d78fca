"""Secrets do not stand in sweep files: what looks like one is refused, what only sounds like one is not."""

import pytest
import yaml

from scalevec import sweeps
from scalevec.results.masking import masked
from scalevec.sweeps.trainer_checks import SHORTEST, is_secret

SECRET = "s3cr3t-value"


def problems(tmp_path, *words: str, **fields: str) -> str:
    (tmp_path / "train.py").touch()
    command = ["python", "train.py", "--run={seed},{out}", *words]
    data = {
        "name": "x",
        "trainer": {"command": command, "result": "end.json"},
        "fields": fields,
        "ladder": [{"name": "s", "n_params": 1000}],
        "arms": {"a": {}},
    }
    try:
        sweeps.loads(yaml.safe_dump(data), "x.yaml", tmp_path)
    except sweeps.SweepError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    "words",
    [
        (f"--api_key={SECRET}",),
        ("--wandb-api-key", SECRET),
        (f"logger.wandb.key={SECRET}",),
        ("env", f"HF_TOKEN={SECRET}"),
        (f"--store=https://me:{SECRET}@host/runs",),
    ],
)
def test_a_secret_in_the_command_is_refused_and_not_repeated(tmp_path, words):
    message = problems(tmp_path, *words)
    assert f"trainer.command[{2 + len(words)}]: holds a secret" in message
    assert "let the trainer read an environment variable" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    "words",
    [
        ("--tokens=1000000000",),
        ("--tokenizer=gpt2-medium",),
        ("--key-heads", "eight-of-them"),
        ("--token={tokens}",),
        ("--pad_token=<|endoftext|>",),
        ("--ssh-key=/home/me/.ssh/id_rsa",),
        ("--token=short",),
        ("--use-auth-token", "--verbose-logging"),
        ("--bypass=residual",),
        ("--master=tcp://host:29500",),
    ],
)
def test_what_only_sounds_like_a_secret_is_taken(tmp_path, words):
    assert problems(tmp_path, *words) == ""


@pytest.mark.parametrize("name", ["api_key", "token", "hf_token", "secret"])
def test_a_text_field_that_is_called_like_a_secret_is_refused(tmp_path, name):
    assert f"fields.{name}: is called like a secret" in problems(tmp_path, **{name: "str"})


@pytest.mark.parametrize(("name", "kind"), [("tokenizer", "str"), ("num_tokens", "int"), ("keys", "str")])
def test_a_field_that_only_sounds_like_a_secret_is_taken(tmp_path, name, kind):
    assert problems(tmp_path, **{name: kind}) == ""


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "PGPASSWORD"])
def test_names_of_secrets_are_those_whose_values_are_masked(name):
    value = "v" * SHORTEST
    assert is_secret(name)
    assert masked(value, {name: value}) != value
    assert masked(value[1:], {name: value[1:]}) == value[1:]
