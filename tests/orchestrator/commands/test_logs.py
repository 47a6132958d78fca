"""logs: what a worker or a controller printed, and what it goes on to print."""

import os
import threading
import time

import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look import logs as logging
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.sweep.controller import directory_of as controller_of
from scalevec.results.files import CorruptRecordError
from support import CHECKOUT


@pytest.fixture
def runs_dir(tmp_path):
    record_sweep(tmp_path / "runs", "small", [member_of("none", 0)])
    return tmp_path / "runs"


@pytest.fixture
def directory(runs_dir):
    return directory_of(runs_dir, "none", 0)


def test_the_log_of_a_trial_is_printed_without_control_characters(runs_dir, directory, capsys):
    directory.log_path.write_text("first\n\x1b[2Jsecond\nno end")
    assert logging.logs(directory.trial_id[:8], runs_dir) is Exit.DONE
    assert capsys.readouterr().out == "first\n\\x1b[2Jsecond\nno end"


def test_a_trial_without_a_log_is_refused(runs_dir, directory):
    with pytest.raises(InvalidInputError, match=r"log.txt: nothing was printed yet"):
        logging.logs(directory.trial_id[:8], runs_dir)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_file_in_place_of_a_log_is_refused_by_name(runs_dir, directory, make):
    make(directory.log_path)
    with pytest.raises(CorruptRecordError, match=r"log.txt: is a (FIFO|link), where a file is expected"):
        logging.logs(directory.trial_id[:8], runs_dir)


def test_a_line_without_end_takes_no_more_time_than_the_same_text_in_lines(runs_dir, directory, capsys):
    def seconds(text: str) -> float:
        directory.log_path.write_text(text)
        began = time.process_time()
        logging.logs(directory.trial_id[:8], runs_dir)
        assert capsys.readouterr().out == text
        return time.process_time() - began

    assert seconds("a" * 2**23) < 4 * seconds(("a" * 63 + "\n") * 2**17)


def test_a_sweep_file_stands_for_the_sweep_of_its_name(runs_dir, tmp_path, capsys):
    controller = controller_of(runs_dir, "small")
    controller.path.mkdir(parents=True)
    controller.log_path.write_text("tuning: 3 trials\n")
    path = tmp_path / "mine.yaml"
    text = (CHECKOUT / "sweeps" / "quickstart.yaml").read_text()
    path.write_text(text.replace("name: quickstart", "name: small"))
    logging.logs(str(path), runs_dir)
    assert capsys.readouterr().out == "tuning: 3 trials\n"


def test_following_goes_on_until_the_trial_has_ended(runs_dir, directory, capsys, monkeypatch):
    monkeypatch.setattr(logging, "POLL_S", 0.01)
    directory.append_event("running", attempt=1)
    directory.log_path.write_text("begun ")
    args = (directory.trial_id[:8], runs_dir)
    follower = threading.Thread(target=logging.logs, args=args, kwargs={"follow": True})
    follower.start()
    with directory.log_path.open("a") as log:
        log.write("and done\n")
    complete(directory)
    follower.join(60)
    assert not follower.is_alive()
    assert capsys.readouterr().out == "begun and done\n"
