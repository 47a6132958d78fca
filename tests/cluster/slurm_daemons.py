"""A private SLURM on this machine: munge, MariaDB, slurmdbd, slurmctld and four slurmd, loopback only.

Partitions: ``high`` (the default) preempts ``low`` (jobs are requeued) and ``spare`` (jobs are cancelled).
Each node has two CPUs, 4 GB and two GPUs, which are null devices.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.needs import missing

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
INSTALL = (
    "apt-get install -y --no-install-recommends munge slurmctld slurmd slurm-client slurmdbd "
    "mariadb-server iproute2"
)
NODES = ("n1", "n2", "n3", "n4")
PATIENCE_S = 600
INSTALLATION = ("--auth-root-authentication-method=normal", "--skip-test-db", "--force")
DATABASE = (
    "create database if not exists slurm_acct_db; create user if not exists slurm@localhost identified by "
    "'slurm'; grant all on slurm_acct_db.* to slurm@localhost;"
)
SLURM_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
# Listen on the address of the host's name, 127.0.0.1, not on all.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=0,batch_sched_delay=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
KillOnBadExit=0
MinJobAge={remembered_s}
InactiveLimit=0
MessageTimeout=60
SlurmctldTimeout=30
SlurmdTimeout=300
MaxArraySize=101
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
{accounting}
{settings}
Epilog={root}/epilog
DefMemPerCPU=500
GresTypes=gpu
{nodes}
PartitionName=high Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF
PartitionName=low Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=spare Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=1 PreemptMode=CANCEL
"""
WHILE = """\
#!/bin/sh
while [ -e {path} ]; do sleep 0.1; done
"""
HELD_BY = {"prolog": "configuring", "epilog": "completing"}
"""Before and after a job its node is busy with it while that file is there, where there is such a script."""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge.sock"""
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={root}/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommunicationParameters=NoInAddrAny
CommitDelay=1
"""


@dataclass
class SlurmCluster:
    """Four virtual nodes under ``root``; ``port`` and the next hundred are its own."""

    root: Path
    port: int = 17000
    accounting: bool = True
    remembered_s: int = 300
    """How long the controller knows a job after its end."""
    settings: str = ""
    """Further lines of its configuration."""
    daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find this cluster."""
        return {"SLURM_CONF": str(self.root / "slurm.conf"), "MYSQL_UNIX_PORT": str(self.root / "mysql.sock")}

    def start(self) -> None:
        """Start every daemon; returns when all nodes are idle."""
        self._write_configuration()
        self._start_munge()
        if self.accounting:
            self._start_database()
        self.start_daemon("slurmctld", "-D")
        for node in NODES:
            (self.root / f"spool.{node}").mkdir()
            self.start_node(node)
        until(lambda: self.nodes_in("idle") == set(NODES), "all nodes are idle", self.logs)

    def stop(self) -> None:
        """End the jobs, then the daemons."""
        try:
            self.run("scancel", "--user=root", check=False)
            until(lambda: not self.run("squeue", "--noheader").strip(), "the queue is empty", self.logs)
        finally:
            self.stop_daemons()

    def stop_daemons(self) -> None:
        """End the daemons that were started, the newest first."""
        for name in reversed(list(self.daemons)):
            self.stop_daemon(name)

    def run(self, *command: str, check: bool = True) -> str:
        """What a command of SLURM prints."""
        return printed(command, self.environment, check)

    def nodes_in(self, state: str) -> set[str]:
        """The nodes whose state is exactly ``state``."""
        lines = self.run("sinfo", "-h", "-N", "-p", "high", "-o", "%N %T", check=False).splitlines()
        return {node for node, actual in (line.split() for line in lines) if actual == state}

    def start_daemon(self, name: str, *arguments: str, label: str = "") -> None:
        """Start a program in the foreground."""
        program = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert program is not None
        label = label or name
        with (self.root / f"{label}.out").open("ab") as output:
            self.daemons[label] = subprocess.Popen(
                [program, *arguments],
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop_daemon(self, label: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon by its handle."""
        process = self.daemons.pop(label)
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_node(self, node: str) -> None:
        """Start the daemon of one node."""
        self.start_daemon("slurmd", "-D", "-N", node, label=node)

    def logs(self) -> str:
        """The last lines of every log."""
        paths = sorted([*self.root.glob("*.log"), *self.root.glob("*.out")])
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in paths)

    def _write_configuration(self) -> None:
        for folder in ("state", "mysql", "mysql-temporary", "dev"):
            (self.root / folder).mkdir()
        host = socket.gethostname().split(".")[0]
        what = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN"
        nodes = "\n".join(
            f"NodeName={node} Port={self.port + 100 + position} {what}" for position, node in enumerate(NODES)
        )
        accounting = ACCOUNTING.format(port=self.port + 2, root=self.root) if self.accounting else ""
        text = SLURM_CONF.format(
            name=f"test{self.port}",
            host=host,
            port=self.port + 1,
            root=self.root,
            remembered_s=self.remembered_s,
            accounting=accounting,
            settings=self.settings,
            nodes=nodes,
        )
        (self.root / "slurm.conf").write_text(text)
        for script, file in HELD_BY.items():
            path = self.root / script
            path.write_text(WHILE.format(path=self.root / file))
            path.chmod(0o755)
        (self.root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        for gpu in ("gpu0", "gpu1"):
            (self.root / "dev" / gpu).symlink_to("/dev/null")
        gpus = f"AutoDetect=off\nNodeName=n[1-4] Name=gpu File={self.root}/dev/gpu[0-1]\n"
        (self.root / "gres.conf").write_text(gpus)

    def _start_munge(self) -> None:
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        socket_path = self.root / "munge.sock"
        files = {"key-file": key, "socket": socket_path, "pid-file": self.root / "munged.pid"}
        files |= {"log-file": self.root / "munged.log", "seed-file": self.root / "munge.seed"}
        options = [f"--{name}={path}" for name, path in files.items()]
        self.start_daemon("munged", "--foreground", "--force", *options)
        until(socket_path.exists, "munge listens", self.logs)

    def _start_database(self) -> None:
        data, database_socket = self.root / "mysql", self.root / "mysql.sock"
        # Temporary tables are named after the process number, which two namespaces give twice: in a folder
        # that they share (/tmp), one server deletes the other's.
        common = [
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--tmpdir={self.root}/mysql-temporary",
        ]
        # The accounts are for localhost alone, so the name of this machine need not be known to its resolver.
        printed(["mariadb-install-db", *common, *INSTALLATION])
        options = [f"--socket={database_socket}", "--skip-networking"]
        options += [f"--pid-file={self.root}/mysql.pid", "--innodb-buffer-pool-size=64M"]
        options += [
            "--innodb-log-file-size=16M",
            "--innodb-lock-wait-timeout=900",
            "--performance-schema=OFF",
        ]
        options += ["--innodb-flush-log-at-trx-commit=0", f"--log-error={self.root}/mariadbd.log"]
        self.start_daemon("mariadbd", *common, *options)
        client = ["mariadb", "--no-defaults", f"--socket={database_socket}", "-uroot", "-e", DATABASE]
        until(lambda: succeeds(client), "the database answers", self.logs)
        configuration = self.root / "slurmdbd.conf"
        configuration.write_text(SLURMDBD_CONF.format(root=self.root, port=self.port + 2))
        configuration.chmod(0o600)
        self.start_daemon("slurmdbd", "-D")
        register = ["sacctmgr", "-i", "add", "cluster", f"test{self.port}"]
        until(lambda: succeeds(register, self.environment), "slurmdbd answers", self.logs)


def printed(command: Sequence[str], environment: Mapping[str, str] | None = None, check: bool = True) -> str:
    """What ``command`` prints; RuntimeError with all of its output if it fails."""
    variables = os.environ | (environment or {})
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE_S)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)} returned {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def succeeds(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Whether ``command`` returns 0."""
    variables = os.environ | (environment or {})
    return subprocess.run(command, env=variables, capture_output=True, timeout=PATIENCE_S).returncode == 0


def until(condition: Callable[[], bool], what: str, explain: Callable[[], str] = str) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}\n{explain()}"
        time.sleep(0.1)


def require_programs(*programs: str) -> None:
    """Skip where a program is missing; in CI that is a failure."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    lacking = [name for name in programs if shutil.which(name, path=path) is None]
    if lacking:
        missing(", ".join(lacking), INSTALL)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster with accounting."""
    require_programs(*PROGRAMS, *ACCOUNTING_PROGRAMS)
    yield from running(SlurmCluster(tmp_path_factory.mktemp("slurm")))


@pytest.fixture(scope="session")
def slurm_without_accounting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster that forgets its jobs two seconds after their end; a script goes before each."""
    require_programs(*PROGRAMS)
    folder = tmp_path_factory.mktemp("forgetful")
    prolog = f"PrologSlurmctld={folder}/prolog"
    yield from running(SlurmCluster(folder, 18000, accounting=False, remembered_s=2, settings=prolog))


@pytest.fixture
def slurm_commands(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The commands of this process and its children go to the cluster with accounting."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    return slurm


def running(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """``cluster``, started, and stopped afterwards."""
    try:
        cluster.start()
    except BaseException:
        cluster.stop_daemons()
        raise
    try:
        yield cluster
    finally:
        cluster.stop()
