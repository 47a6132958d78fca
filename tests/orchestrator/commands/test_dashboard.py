"""dashboard: a sweep in the browser of the machine where it is asked for, and for nobody else."""

import json
import threading
import urllib.request
from urllib.error import HTTPError

import pytest

from browser import chromium
from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look import dashboard as dashboards
from scalevec.orchestrator.commands.look.dashboard import POINTS, Curve, DashboardServer, WatchedSweep
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.observers.trial_logs import MetricsTail

ODD = "<img src=x onerror=alert(1)>"


@pytest.fixture
def runs_dir(tmp_path):
    """A sweep of two arms: a trial is done, one runs, one waits."""
    record_sweep(
        tmp_path / "runs",
        "small",
        [member_of("none", 0) | {"arm": ODD}, member_of("none", 1), member_of("unified", 0)],
    )
    complete(directory_of(tmp_path / "runs", "none", 0))
    running = directory_of(tmp_path / "runs", "none", 1)
    running.append_event("running", attempt=1)
    for step in range(1, 1001):
        running.append_metrics({"step": step, "loss": 8.0 - step / 500, "tokens_per_s": 1e4}, lambda: None)
    return tmp_path / "runs"


@pytest.fixture
def server(runs_dir):
    with DashboardServer(WatchedSweep("small", runs_dir)) as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def get(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return answer.read()


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["", "state", "report"])
def test_without_the_token_nothing_is_shown(path, server):
    for wrong in ("", "wrong/", server.token[:-1] + "/"):
        with pytest.raises(HTTPError, match="403"):
            get(f"http://127.0.0.1:{server.server_port}/{wrong}{path}")


def test_a_page_whose_own_name_points_here_is_refused(server):
    with pytest.raises(HTTPError, match="403"):
        get(server.url, Host=f"elsewhere.example:{server.server_port}")


def test_another_end_of_a_tunnel_is_this_machine_too(server):
    assert b"<!doctype html>" in get(server.url, Host="localhost:9999")


def test_the_state_has_progress_and_curves_and_no_loss_of_an_arm(server):
    state = json.loads(get(server.url + "state"))
    assert state["counts"] == "comparison, 1 of 3 trials done, 1 running, 1 waiting"
    assert [cell["trials"] for cell in state["cells"]] == [1, 1, 1]
    assert not [cell for cell in state["cells"] if "loss" in cell]
    [curve] = state["curves"]
    assert len(curve["points"]) <= 2 * POINTS
    assert (curve["points"][0], curve["points"][-1]) == ([1, 7.998], [1000, 6.0])


def test_a_curve_goes_on_with_its_file_whose_last_line_may_be_torn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    curve = Curve(MetricsTail(path))
    curve.read_on()
    assert curve.points == []
    path.write_text('{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n{"step": 3, "lo')
    curve.read_on()
    assert curve.points == [(1, 3.0), (2, 2.0)]
    path.write_text('{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n{"step": 3, "loss": 1}\n')
    curve.read_on()
    assert curve.points == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_the_report_is_there_once_it_is_written(server, runs_dir):
    assert not json.loads(get(server.url + "state"))["has_report"]
    with pytest.raises(HTTPError, match="404"):
        get(server.url + "report")
    (runs_dir / "sweeps" / "small" / "report.html").write_text("the report")
    assert get(server.url + "report") == b"the report"


def test_damage_is_said_and_the_page_asks_again(server, runs_dir, monkeypatch):
    monkeypatch.setattr(dashboards, "LOOK_S", 0.0)
    members = runs_dir / "sweeps" / "small"
    members.rename(members.with_name("away"))
    assert "small" in json.loads(get(server.url + "state"))["problem"]
    members.with_name("away").rename(members)
    assert "problem" not in json.loads(get(server.url + "state"))


def test_a_port_that_is_taken_is_refused(server, runs_dir):
    with pytest.raises(InvalidInputError, match=f"--port is {server.server_port}: .*; 0 takes a free one"):
        DashboardServer(WatchedSweep("small", runs_dir), server.server_port)


@pytest.mark.slow
def test_in_a_browser_it_shows_what_runs_and_goes_on(server, runs_dir, monkeypatch):
    monkeypatch.setattr(dashboards, "LOOK_S", 0.0)
    messages: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda problem: messages.append(str(problem)))
        page.goto(server.url)
        page.wait_for_selector("text=1 of 3 trials done")
        assert ODD in page.inner_text("#cells")
        assert page.locator("polyline").count() == 1
        complete(directory_of(runs_dir, "none", 1))
        page.wait_for_selector("text=2 of 3 trials done")
        assert not page.is_visible("#running")
    assert messages == []


def test_a_report_that_somebody_else_wrote_has_no_part_in_what_the_dashboard_knows(server, runs_dir):
    report = runs_dir / "sweeps" / "small" / "report.html"
    report.write_text("<script>fetch('state')</script>")
    with urllib.request.urlopen(server.url + "report", timeout=60) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "connect-src 'none'" in policy
    report.unlink()
    report.symlink_to("/etc/hostname")
    with pytest.raises(HTTPError, match="404"):
        get(server.url + "report")
