"""Values of secret variables are kept out of what is printed and kept."""

import io
import json
import time

import pytest

from scalevec.orchestrator.progress import note
from scalevec.results.masking import HIDDEN, MaskedStream, masked
from scalevec.results.run_directory import RunDirectory


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "PGPASSWORD", "GH_PAT", "REDISCLI_AUTH", "SLACK_WEBHOOK_URL"]
)
def test_a_value_is_masked_by_the_name_of_its_variable(name):
    assert masked("at https://u:s3cr3t-value@host", {name: "s3cr3t-value"}) == "at https://u:***@host"


def test_the_lines_of_a_longer_value_are_masked_each():
    key = {"MY_SECRET": "first-line\nsecond-line"}
    assert masked("second-line\nfirst-line\nthird-line", key) == "***\n***\nthird-line"


TOKENS = [
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11ABCDEFG0_" + "x" * 40,
    "hf_" + "aBcDeFgHiJ" * 3,
    "sk-ant-api03-" + "a1_-" * 12,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-abcdefghij",
    "glpat-" + "a1B2-c3D4_e5F6g7H8",
    "AIza" + "Sy-a1B2_" * 4 + "abc",
    "pypi-" + "AgEIcHlwaS5vcmc" + "x" * 40,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.sig_na-ture",
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:6])
@pytest.mark.parametrize("around", ["{}", "key={}", '"{}",', "at {}."])
def test_a_token_is_masked_by_its_form_whatever_its_variable_is_called(token, around):
    shown = masked(around.format(token), {"SETTING": token})
    assert HIDDEN in shown
    assert token[6:] not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://me:pw@host/db", "postgres://me:***@host/db"),
        ("'redis://:p%40ss@host:6379'", "'redis://:***@host:6379'"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "{'Authorization': 'Basic ***'}"),
        ("basic dXNlcjpwYXNzd29yZA==", "basic ***"),
        ("https://hooks.slack.com/services/T0/B0/x1y2", "https://hooks.slack.com/***"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("https://s3/x?X-Amz-Signature=0123ab&a=1", "https://s3/x?X-Amz-Signature=***&a=1"),
    ],
)
def test_what_looks_like_a_secret_is_masked_where_it_stands(text, shown):
    assert masked(text, {}) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/simple/package@1.0",
        "ssh://git@host/path, me@host, tcp://host:29500",
        "trial 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "basic arithmetic, bearer of news, token 12 of 4096, sk-learn, task-oriented-programming-language",
        "hf_hub_download(repo), npm_config_cache_directory_name, global-batch-size-of-each-trial",
        "password: is called like a secret; the password=*** of a user",
        "arm unified, rung 25k: step 1,234 of 10,000, loss 3.2157, 1.2e+05 tokens/s",
    ],
)
def test_ordinary_words_paths_and_digests_stay(text):
    assert masked(text, {}) == text


def test_the_password_of_a_variables_url_is_masked_alone_too():
    url = {"DATABASE_URL": "postgres://app:p%40ssw0rd@host/db"}
    assert masked("p%40ssw0rd and p@ssw0rd at host, app, db", url) == "*** and *** at host, app, db"
    assert masked("the user postgres", {"URL": "postgres://postgres:postgres@host"}) == "the user postgres"


@pytest.mark.parametrize("unit", ["://", "://u:", "eyJaaaaaaaa.", "Bearer ", "?token", "sk-", "-", "secret="])
def test_no_text_makes_it_slow(unit):
    began = time.process_time()
    masked(unit * (300_000 // len(unit)), {})
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "/home/me/work") for name in ("PWD", "XAUTHORITY", "SSH_AUTH_SOCK", "PATH", "HOME")),
        ("TOKENIZERS_PARALLELISM", "falsehood"),
        ("SHORT_KEY", "on"),
    ],
)
def test_folders_sockets_and_short_values_are_no_secrets(name, value):
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
