"""Profiles: where they come from, what they may hold, and that nothing in them reaches a shell."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.profiles import INERT, Profile, RungProfile, load_profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.trust import Trust

METACHARACTERS = (*(f"a{sign}b" for sign in "; $|&>'\"\n\\"), "$(touch x)", "`x`", "a\n", "-a")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, and no profiles of the user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SCALEVEC_PROFILES", raising=False)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refusal(folder: Path, text: str, name: str = "site") -> str:
    write(folder / "profiles.yaml", text)
    with pytest.raises(InvalidInputError) as refused:
        load_profile(name, folder)
    return str(refused.value)


def test_without_a_name_every_setting_has_its_default(folder):
    assert load_profile(None, folder) == Profile()


def test_the_users_own_profile_stands_before_one_beside_the_sweep(folder):
    write(folder / "config" / "scalevec" / "profiles.yaml", "site: {partition: own}\nhome: {partition: mine}")
    write(folder / "profiles.yaml", "site: {partition: beside}\nlab: {partition: beside}")
    assert load_profile("site", folder).partition == "own"
    assert load_profile("lab", folder).partition == "beside"
    assert load_profile("home", folder).partition == "mine"
    assert load_profile("site", None).partition == "own"


@pytest.mark.parametrize(
    "text",
    [
        "python: /tmp/evil",
        "launcher: [sh, -c, evil]",
        "setup: [evil]",
        "flags: {container: evil}",
        "address: evil.example:6379",
        "log: [wandb]",
    ],
)
def test_what_of_a_profile_beside_a_sweep_is_a_command_is_asked_about_before_it_counts(folder, capsys, text):
    write(folder / "profiles.yaml", f"site: {{partition: cpu, {text}}}")
    with pytest.raises(InvalidInputError, match="profile site: its code is not trusted; nothing was run"):
        load_profile("site", folder)
    shown = capsys.readouterr().err
    assert "partition" not in shown
    assert ("evil" in shown) is ("log" not in text)
    assert load_profile("site", folder, trust=None).partition == "cpu"
    assert load_profile("site", folder, trust=Trust(given=True)).trusted
    load_profile("site", folder)
    write(folder / "profiles.yaml", f"site: {{partition: gpu, {text}}}")
    load_profile("site", folder)
    other = f"site: {{python: /tmp/other, {text}}}".replace("python: /tmp/evil", "cpus: 1")
    write(folder / "profiles.yaml", other)
    with pytest.raises(InvalidInputError, match="is not trusted"):
        load_profile("site", folder)


def test_a_rung_of_a_profile_beside_a_sweep_is_asked_about_too(folder, capsys):
    write(folder / "profiles.yaml", "site: {cpus: 1, rungs: {big: {cpus: 2, launcher: [evil]}}}")
    with pytest.raises(InvalidInputError, match="is not trusted"):
        load_profile("site", folder)
    assert 'rungs.big.launcher: ["evil"]' in capsys.readouterr().err


def test_a_profile_of_the_users_own_or_that_the_environment_names_is_not_asked_about(folder, monkeypatch):
    write(folder / "config" / "scalevec" / "profiles.yaml", "site: {setup: [module load cuda]}")
    assert load_profile("site", folder).setup
    write(folder / "named.yaml", "site: {launcher: [env]}")
    monkeypatch.setenv("SCALEVEC_PROFILES", str(folder / "named.yaml"))
    assert load_profile("site", folder).launcher


def test_every_key_of_a_profile_is_inert_or_asked_about():
    assert set(Profile.model_fields) >= INERT
    expected = {"python", "launcher", "setup", "flags", "address", "log", "private_dir", "rungs"}
    assert set(Profile.model_fields) - INERT == expected


def test_a_file_that_the_environment_names_has_to_be_there(folder, monkeypatch):
    monkeypatch.setenv("SCALEVEC_PROFILES", str(folder / "absent.yaml"))
    with pytest.raises(InvalidInputError, match=r"absent.yaml.*no such file"):
        load_profile("site", folder)


def test_a_rung_has_its_own_resources_over_the_general_ones(folder):
    of_rung = "{partition: gpu, gpus: 1, setup: [module load cuda]}"
    text = f"site: {{partition: cpu, time: 30, rungs: {{2B: {of_rung}}}}}"
    write(folder / "config" / "scalevec" / "profiles.yaml", text)
    profile = load_profile("site", folder)
    large, small = profile.for_rung("2B"), profile.for_rung("25M")
    assert (large.partition, large.gpus, large.time, large.setup) == ("gpu", 1, 30, ("module load cuda",))
    assert small == profile


def test_a_rung_may_take_back_to_the_default_what_the_profile_says(folder):
    write(folder / "profiles.yaml", "site: {time: 30, rungs: {big: {time: auto}}}")
    assert load_profile("site", folder).for_rung("big").time == "auto"


def test_an_unknown_name_is_refused_with_the_nearest(folder):
    expected = "profile 'clutser': unknown; did you mean cluster? (allowed: cluster)"
    assert refusal(folder, "cluster: {}", "clutser") == expected


def test_where_there_are_no_profiles_the_message_says_where_they_were_looked_for(folder):
    message = r"there are no profiles; looked for .*profiles.yaml and .*profiles.yaml"
    with pytest.raises(InvalidInputError, match=message):
        load_profile("site", folder)


def test_an_unknown_key_is_refused_with_file_line_and_the_nearest(folder):
    message = refusal(folder, "site:\n  partition: a\n  acount: b\n")
    words = "3: site.acount: unknown key; did you mean account? (allowed: "
    assert message.startswith(f"{folder}/profiles.yaml:{words}")


def test_everything_that_is_wrong_is_said_at_once(folder):
    wrong = ("cpus: many", "trials_per_job: all", "gpus: -1", "executor: slrum", "time: soon")
    message = refusal(folder, "site:\n  " + "\n  ".join(wrong))
    *others, last = map(repr, EXECUTORS)
    assert [line.split(": ", 1)[1] for line in message.splitlines()] == [
        "site.cpus: 'many'; allowed: a whole number",
        "site.trials_per_job: 'all'; allowed: auto, or a whole number from 1 to 1000",
        "site.gpus: -1; allowed: a whole number of GPUs, or a share of one (0 to 1) that lets several trials "
        "use it",
        f"site.executor: 'slrum'; allowed: {', '.join(others)} or {last}",
        "site.time: 'soon'; allowed: auto, a positive number of minutes, or a time as 24:00:00 or 2-00:00:00",
    ]


GPUS = "a whole number of GPUs, or a share of one"
A_TIME = "or a time as 24:00:00 or 2-00:00:00"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rungs: {a: {poll_s: 3}}", "site.rungs.a.poll_s: unknown key"),
        ("flags: {p: debug}", "the long name of an option"),
        *((f"flags: {{{key}: x}}", f"'{key}' is set by") for key in ("array", "wrap", "cpus-per-gpu")),
        ("flags: {mem: 4G}", "has a field of its own: memory_gb"),
        ("resources: {GPU: 1}", "has a field of its own: gpus"),
        *((f"gpus: {gpus}", GPUS) for gpus in ("1.5", "h100:0", "h100:1.5")),
        *((f"time: '{time}'", A_TIME) for time in ("12:00", "soon", "1-", "24:00:00:00", "-1")),
        ("max_time: auto", "a positive number of minutes, or a time as 20:00:00"),
        ('setup: ["a\\nb"]', "one line of shell"),
    ],
)
def test_what_no_key_takes_is_refused_with_what_it_takes(folder, text, message):
    assert message in refusal(folder, f"site: {{{text}}}")


@pytest.mark.parametrize(
    "text", ["- a", "site: 3", "", "site: [a]", "site: {rungs: [a]}", "site: {setup: 7}"]
)
def test_what_is_not_a_mapping_or_a_list_where_one_belongs_is_refused(folder, text):
    assert "allowed: a" in refusal(folder, text) or "unknown" in refusal(folder, text)


def test_yaml_that_would_make_objects_is_refused(folder):
    assert "tag" in refusal(folder, "site: !!python/object/apply:os.system ['true']")


@pytest.mark.parametrize("value", METACHARACTERS)
@pytest.mark.parametrize("field", ["partition", "account", "qos", "address"])
def test_signs_of_a_shell_are_no_part_of_a_name(field, value):
    with pytest.raises(ValidationError):
        Profile.model_validate({field: value})


@pytest.mark.parametrize("value", ["a;b", "$(x)", "a b", "`x`", "a\nb", "'a'", '"a"', "a\\b", "a>b"])
def test_a_constraint_holds_features_and_their_signs_only(value):
    assert Profile(constraint="(intel&ib)|[rack1*2]").constraint == "(intel&ib)|[rack1*2]"
    with pytest.raises(ValidationError):
        Profile(constraint=value)


@pytest.mark.parametrize("value", METACHARACTERS)
def test_nodes_and_flags_are_plain_too(value):
    with pytest.raises(ValidationError):
        Profile.model_validate({"exclude": [value]})
    with pytest.raises(ValidationError):
        Profile.model_validate({"flags": {"reservation": value.replace(" ", ";")}})
    with pytest.raises(ValidationError):
        Profile.model_validate({"flags": {value: "x"}})


@given(st.text(min_size=1, max_size=40))
def test_a_name_that_is_taken_never_ends_a_word_of_a_shell(text):
    try:
        profile = Profile(partition=text)
    except ValidationError:
        return
    assert not set(profile.partition or "") & set(" \t\r\n\0;&|<>()$`\\\"'*?[]{}~#!%")


def test_a_flag_may_have_spaces_within():
    assert Profile(flags={"comment": "two words"}).flags == {"comment": "two words"}
    with pytest.raises(ValidationError):
        Profile(flags={"comment": "word "})


def test_flags_of_a_rung_stand_beside_the_profiles_and_may_take_one_back():
    rung = RungProfile(flags={"nice": 7, "exclusive": False})
    profile = Profile(flags={"comment": "ours", "exclusive": True}, rungs={"large": rung})
    assert profile.for_rung("large").flags == {"comment": "ours", "nice": 7, "exclusive": False}


@pytest.mark.parametrize("value", ["afterok:12", "afterany:12:13_4,singleton", "after:12+5"])
def test_a_dependency_is_what_sbatch_takes(value):
    assert Profile(dependency=value).dependency == value


@pytest.mark.parametrize("value", ["afterok:1?afterok:2", "12", "afterok:1;x", "expand:3", ""])
def test_any_other_dependency_is_refused(value):
    with pytest.raises(ValidationError):
        Profile(dependency=value)


@pytest.mark.parametrize(("gpus", "count"), [("h100:1", 1), ("h100:8", 8), (4, 4)])
def test_each_gpu_of_each_machine_has_a_process(gpus, count):
    request = Profile(gpus=gpus, nodes=2, cpus=3, memory_gb=5).request("a", ResourceRequest(gpus=0))
    assert (request.gpus, request.world_size) == (count, 2 * count)
    assert (request.cpus_of_node, request.memory_gb_of_node) == (3 * count, 5 * count)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (Profile(gpus=2, processes=2), "a: processes is 2 and gpus 2; allowed: one of them"),
        (Profile(gpus=0.5, nodes=2), "a: nodes is 2 and gpus 0.5; allowed: whole GPUs on each machine"),
        (Profile(shard=True), "a: shard is true for a trial of one process; allowed with gpus, processes"),
        (Profile(gpus=2, trials_per_gpu=2), "a: trials_per_gpu is 2, and a trial of this rung takes 2 GPUs"),
    ],
)
def test_what_several_processes_cannot_have_is_refused(profile, message):
    with pytest.raises(InvalidInputError, match=message):
        profile.request("a", ResourceRequest())


def test_a_time_in_whole_minutes_is_written_without_a_word(recwarn):
    assert '"time":2880' in Profile(time=2880).model_dump_json()
    assert Profile.model_validate({"time": 2880}).model_dump()["time"] == 2880
    assert not recwarn.list


RAY = """\
ours:
  executor: ray
  partition: gpu
  setup: [module load cuda]
  rungs:
    a: {time: 3}
"""


def test_keys_that_the_executor_does_not_honour_are_refused_with_those_it_does(folder):
    lines = refusal(folder, RAY, "ours").splitlines()
    assert [line.removeprefix(f"{folder}/profiles.yaml:").partition(" does not")[0] for line in lines] == [
        "3: ours.partition: executor ray",
        "4: ours.setup: executor ray",
        "6: ours.rungs.a.time: executor ray",
    ]
    assert "it honours executor, cpus, gpus" in lines[0]


def test_the_executor_asked_for_decides_which_keys_count(folder):
    write(folder / "profiles.yaml", "site: {executor: slurm, partition: gpu}\nplain: {partition: gpu}")
    assert load_profile("site", folder, otherwise="local").partition == "gpu"
    assert load_profile("site", folder, "simulate").partition == "gpu"
    with pytest.raises(InvalidInputError, match=r"site.partition: executor ray does not honour"):
        load_profile("site", folder, "ray")
    with pytest.raises(InvalidInputError, match=r"plain.partition: executor local does not honour"):
        load_profile("plain", folder, otherwise="local")


def test_trials_are_trained_by_the_interpreter_and_launcher_of_their_rung():
    rung = RungProfile(python="/opt/python", launcher=["apptainer", "exec", "image.sif"])
    profile = Profile(rungs={"large": rung})
    assert profile.interpreter("large") == ("apptainer", "exec", "image.sif", "/opt/python")
    assert profile.interpreter("small") == (sys.executable,)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("24:00:00", 1440), ("2-00:00:00", 2880), ("1-12:30", 2190), ("00:30:00", 30), (90, 90)],
)
def test_a_time_is_minutes_or_what_sbatch_takes(text, minutes):
    assert Profile(time=text, max_time=text).limit_minutes(None, [1e9]) == minutes
    assert Profile(time="9-00:00:00", max_time=text).limit_minutes(None, [1e9]) == minutes


def test_short_trials_fill_half_an_hour_of_a_job():
    auto = Profile(trials_per_job="auto")
    assert auto.bundle_size([100.0, 200.0]) == 9
    assert auto.bundle_size([4000.0]) == 1
    assert auto.bundle_size([]) == auto.bundle_size([0.0]) == 1
    assert Profile(trials_per_job="auto", time=10).bundle_size([100.0]) == 6
    assert Profile(trials_per_job="auto", max_time=15).bundle_size([100.0]) == 4
    assert auto.bundle_size([100.0], nodes=2) == 1
    assert Profile(trials_per_job="auto", trials_per_gpu=2).bundle_size([200.0]) == 18
    assert Profile(trials_per_job=3).bundle_size([1.0]) == 3


def test_setup_may_be_a_text_of_several_lines():
    assert Profile(setup="module load cuda\n\nexport A=1\n").setup == ("module load cuda", "export A=1")


def test_profiles_are_frozen():
    with pytest.raises(ValidationError):
        Profile().partition = "a"
    assert RungProfile().time == "auto"
