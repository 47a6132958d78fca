"""What .ci/run sees to itself, whoever starts it."""

import os
import shutil
import subprocess

import pytest

from support import CHECKOUT


@pytest.mark.parametrize(("given", "seen"), [({}, "1"), ({"CI": "mine"}, "mine")])
def test_skips_are_failures_in_every_part_whoever_starts_it(tmp_path, given, seen):
    (tmp_path / ".ci").mkdir()
    shutil.copy(CHECKOUT / ".ci/run", tmp_path / ".ci/run")
    for name, does in ((".ci/packages", ":"), ("make", 'echo "$1 with CI=$CI"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    unset = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = unset | given | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / ".ci/run"], env=environment, capture_output=True, text=True, check=True)
    assert {f"{part} with CI={seen}" for part in ("test", "test-slow")} <= set(done.stdout.splitlines())
