"""What the cluster tests stand on: a namespace of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import needs

NAMESPACE = Path(__file__).with_name("namespace.sh")


def in_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(NAMESPACE), *command], capture_output=True, text=True)


def test_a_command_sees_loopback_alone_and_its_exit_code_is_passed_on():
    code = "import socket; print(socket.if_nameindex()); socket.getaddrinfo(socket.gethostname(), 0)"
    done = in_namespace(sys.executable, "-c", code + "; raise SystemExit(5)")
    assert (done.returncode, done.stdout) == (5, "[(1, 'lo')]\n"), done.stderr


def test_a_process_left_behind_ends_with_the_namespace(tmp_path):
    """A pipe whose writing end is held by the process alone ends when the process does."""
    reading, writing = os.pipe()
    leave = (
        "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True, pass_fds=[{}])"
    )
    command = [str(NAMESPACE), sys.executable, "-c", leave.format(writing)]
    assert subprocess.run(command, pass_fds=[writing]).returncode == 0
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_no_command_is_refused():
    done = in_namespace()
    assert done.returncode == 3
    assert "name a command" in done.stderr


def test_what_is_missing_is_skipped_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is missing: apt-get install it"):
        needs.require("no-such-tool", "apt-get install it")


def test_in_ci_what_is_missing_is_a_failure(monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="pip install it"):
        needs.require_package("no_such_package", "pip install it")
