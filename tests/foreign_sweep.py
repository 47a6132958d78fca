"""A sweep whose trials somebody's script trains, and faults that strike while it runs."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from recorded_sweep import directories_in
from scalevec.results.run_directory import RunDirectory
from support import SCALEVEC, wait_until

PATIENCE_S = 600
SWEEP = f"""\
name: theirs
trainer:
  command: [{sys.executable}, train.py, "width={{width}}", "rate={{learning_rate}}", "decay={{weight_decay}}",
            "seed={{seed}}", "out={{out}}"]
  metrics: log.jsonl
  tokens: tokens
  checkpoint: ckpt-*
  resume: --resume
n_params: 8 * width ** 2
trial: {{batch_tokens: 256}}
tokens: [1280]
arms: {{plain: {{weight_decay: 0.0}}, decay: {{weight_decay: 0.1}}}}
seeds: [0, 1]
compare: {{reference: plain}}
resources: {{default: {{time: 10}}}}
"""
WHOLE = """\
ladder: [{name: s, width: 8}, {name: m, width: 16}, {name: l, width: 24}]
tune: {learning_rate: [0.01, 0.02, 0.04], rungs: [s], seeds: [100], extend: 0}
"""
"""Two arms, three sizes and two seeds, with a tuned rate: 18 trials."""
SMALL = """\
ladder: [{name: s, width: 8, learning_rate: 0.02}]
"""
"""Two arms and two seeds: four trials."""
SCRIPT = """\
import json, math, os, signal, sys, time
from pathlib import Path

given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
lab, out = Path.cwd(), Path(given["out"])
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))
kept = [int(path.name[5:]) for path in out.glob("ckpt-*")] if "--resume" in sys.argv else []
for step in range(max(kept, default=0) + 1, 6):
    width, rate, decay = (float(given[name]) for name in ("width", "rate", "decay"))
    loss = 4 / width + (math.log(rate / 0.02)) ** 2 + decay + int(given["seed"]) % 997 / 1e5 + 1 / step
    with (out / "log.jsonl").open("a") as log:
        print(json.dumps({"step": step, "loss": loss, "tokens": 256 * step}), file=log)
    if step == 3:
        (out / "ckpt-3").touch()
        held = lab / "held" / str(os.getpid())
        while (lab / "hold").exists():
            held.touch()
            time.sleep(0.02)
"""


class ForeignSweep:
    """The sweep in ``folder``; its trials stand after step 3 of 5, with a checkpoint, while it is held."""

    def __init__(self, folder: Path, sizes: str = WHOLE) -> None:
        self.folder, self.trials = folder, 18 if sizes == WHOLE else 4
        (folder / "held").mkdir()
        (folder / "theirs.yaml").write_text(SWEEP + sizes)
        (folder / "train.py").write_text(SCRIPT)

    def start(self, *options: str, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        command = [str(SCALEVEC), "run", "theirs.yaml", "--trust", *options]
        environment = os.environ | (variables or {})
        environment |= {"SCALEVEC_CACHE_DIR": str(self.folder / "cache"), "XDG_CONFIG_HOME": str(self.folder)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, start_new_session=True, **pipes
        )

    def hold(self) -> None:
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink()

    def held(self, count: int, process: "subprocess.Popen[str]") -> list[psutil.Process]:
        """``count`` of the scripts, once they are held."""
        wait_until(lambda: len(list((self.folder / "held").iterdir())) >= count, process)
        return [psutil.Process(int(path.name)) for path in (self.folder / "held").iterdir()][:count]

    def processes(self) -> list[psutil.Process]:
        """Whatever still runs for it."""
        words = ((process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
        return [process for process, line in words if any(str(self.folder) in word for word in line)]

    def directories(self) -> list[RunDirectory]:
        return directories_in(self.folder / "runs")

    def causes(self) -> set[str]:
        events = (event for directory in self.directories() for event in directory.events())
        return {event["cause"] for event in events if event["state"] == "pending"}

    def assert_whole(self) -> None:
        """Nothing is lost, nothing is there twice, and no process is left."""
        directories = self.directories()
        assert len(directories) == self.trials
        for directory in directories:
            result, values = directory.result(), directory.trial()["semantic"]
            assert [row["step"] for row in directory.metrics()] == [1, 2, 3, 4, 5]
            assert [event["state"] for event in directory.events()].count("completed") == 1
            assert math.isclose(result["loss"], expected_loss(values))
            assert not list(directory.out_path.glob("ckpt-*"))
        wait_until(lambda: not self.processes())


def expected_loss(semantic: Mapping) -> float:
    values, seed = semantic["values"], int(semantic["stream"][:16], 16) % 2**31
    away = math.log(values["learning_rate"] / 0.02) ** 2
    return 4 / values["width"] + away + values["weight_decay"] + seed % 997 / 1e5 + 1 / 5


def strike(sweep: ForeignSweep, process: "subprocess.Popen[str]") -> None:
    """kill -9 of a script, the time limit of another trial, kill -9 of the scheduler."""
    killed, limited = sweep.held(2, process)
    worker = limited.parent().parent()
    killed.kill()
    worker.send_signal(signal.SIGUSR2)
    wait_until(lambda: {"killed", "timeout"} <= sweep.causes())
    process.kill()
    process.communicate()
    sweep.release()


def end_of(process: "subprocess.Popen[str]") -> str:
    output, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages
    return output
