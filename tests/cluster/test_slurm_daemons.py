"""The set-up of the private SLURM says why it failed, and leaves nothing running."""

import pytest

from cluster.slurm_daemons import SlurmCluster, running

FAILING = "#!/bin/sh\necho installing\necho 'ERROR: 6 no such table' >&2\nexit 1\n"


def test_a_start_that_fails_says_what_was_printed_and_ends_the_daemons_that_run(tmp_path, monkeypatch):
    cluster = SlurmCluster(tmp_path / "slurm")
    cluster.root.mkdir()
    installer = tmp_path / "mariadb-install-db"
    installer.write_text(FAILING)
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(cluster, "_start_munge", lambda: cluster.start_daemon("sleep", "600"))
    stop_daemon, ended = cluster.stop_daemon, []
    monkeypatch.setattr(cluster, "stop_daemon", lambda label: (stop_daemon(label), ended.append(label)))
    with pytest.raises(RuntimeError, match=r"(?s)returned 1:.*installing.*ERROR: 6 no such table"):
        next(running(cluster))
    assert (ended, cluster.daemons) == (["sleep"], {})


def test_the_database_shares_its_temporary_tables_with_no_other(slurm):
    """In one folder, two databases that have the same process number delete each other's."""
    client = ["mariadb", "--no-defaults", f"--socket={slurm.root}/mysql.sock", "-uroot", "-N"]
    assert slurm.run(*client, "-e", "select @@tmpdir").strip() == str(slurm.root / "mysql-temporary")
