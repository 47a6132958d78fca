"""Trials as tasks of Ray: on a cluster that is there already, or on one made here for the sweep alone."""

import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.attempts.jobs import Job, WorkerExit, on_machine
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.executors.ray import ray_nodes
from scalevec.orchestrator.executors.ray.connection import Connection, require_ray
from scalevec.orchestrator.snapshots.snapshot import taken

if TYPE_CHECKING:
    from ray import ObjectRef

LOOK_AT_NODES_S = 2.0
"""How long a count of the cluster's processors is good for."""
MOST_DEMANDED = 1000
"""Tasks that a cluster which grows with demand is shown at a time, where the profile does not say."""
NODE_LABEL = "ray.io/node-id"


@dataclass(frozen=True)
class _Sent:
    """A task; ``where`` is told the node on which it runs."""

    reference: "ObjectRef[int]"
    where: Path
    group: ray_nodes.MachinesGroup | None = None
    """The tasks on further machines."""


class RayExecutor(Executor):
    """One Ray task a trial. Ray starts no trial again: that is for the scheduler's policy to decide.

    A task lives no longer than its driver, and the trial's process no longer than its task: when the
    scheduler dies, so do its trials, and the next one goes on from their checkpoints. So there is never
    anything to adopt, nor a second writer. The connection is made when it is first needed.
    """

    name = "ray"

    def __init__(self, site: Site) -> None:
        """Raises ``MissingRequirementError`` where Ray is not installed."""
        require_ray()
        if site.profile.autoscale and site.profile.address is None:
            raise InvalidInputError("autoscale is true, but the profile has no address of a cluster")
        self.site = site
        self._connection = Connection(site.profile.address, site.slots * site.cpus)
        self._folder = site.runs_dir / "sweeps" / site.sweep / "ray"
        self._tasks: dict[str, _Sent] = {}
        self._called_off: set[str] = set()
        self._capacity, self._counted = 0, -LOOK_AT_NODES_S

    @property
    def free_slots(self) -> int:
        """A task for each processor of the cluster; those that it has no room for wait in Ray.

        A cluster that grows with demand is shown the demand. Raises ``MissingRequirementError`` where no
        cluster answers.
        """
        self._connection.open()
        if not self._connection.answers():
            return 0
        profile, now = self.site.profile, time.monotonic()
        if profile.autoscale:
            return (profile.max_parallel or MOST_DEMANDED) - len(self._tasks)
        if now - self._counted >= LOOK_AT_NODES_S:
            processors = int(
                sum(node.resources.get("CPU", 0.0) for node in self._connection.ask(ray_nodes.alive))
            )
            self._capacity, self._counted = max(1, processors), now
        return min(self._capacity, profile.max_parallel or self._capacity) - len(self._tasks)

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Hand tasks to Ray.

        Raises ``InvalidInputError`` for a request that none of the cluster's nodes can meet.
        """
        self._connection.open()
        nodes = self._connection.ask(ray_nodes.alive)
        requests = [self._options(job, nodes) for job in jobs]
        self._folder.mkdir(parents=True, exist_ok=True)
        return [
            self._connection.ask(partial(self._send, job, options))
            for job, options in zip(jobs, requests, strict=True)
        ]

    def _options(self, job: Job, nodes: Sequence[ray_nodes.Node]) -> dict[str, Any]:
        """What Ray is asked for, away from the nodes to avoid as long as others could do it."""
        further, grows = self.site.profile.for_rung(job.rung).resources, self.site.profile.autoscale
        wanted = _wanted(job) | further
        able = [node for node in nodes if ray_nodes.could_run(node, wanted)]
        machines = job.request.nodes
        if (len(able) < machines and not grows) or not _is_countable(wanted["GPU"]):
            each = "one machine" if machines == 1 else f"each of {machines} machines"
            asked = f"{job.rung or job.label}: asks for {ray_nodes.describe(wanted, further)} on {each}"
            raise InvalidInputError(
                f"{asked}; the Ray cluster has {'; '.join(node.describe(further) for node in nodes)}"
            )
        options: dict[str, Any] = {
            "num_cpus": wanted["CPU"],
            "num_gpus": wanted["GPU"],
            "memory": int(wanted["memory"]) or None,
            "resources": further or None,
        }
        avoided = [node.id for node in nodes if {node.name, node.host} & set(job.avoid_nodes)]
        if avoided and (grows or sum(node.id not in avoided for node in able) >= machines):
            options["label_selector"] = {NODE_LABEL: f"!in({','.join(avoided)})"}
        return options

    def _send(self, job: Job, options: Mapping[str, Any]) -> str:
        number = secrets.token_hex(8)
        where, command = (self._folder / number).resolve(), taken(self.site.private).command(job.command)
        # By what stands there, machines connect to one another: out of other users' reach.
        nodes, meeting = job.request.nodes, self.site.private / "ray" / f"{number}.json"

        def send(node: int, options: Mapping[str, Any]) -> "ObjectRef[int]":
            task = _remote().options(max_retries=0, name=job.label or None, **options)
            words = command if nodes == 1 else on_machine(command, node, nodes, meeting)
            told = where if node == 0 else where.with_suffix(f".{node}")
            arguments = (words, job.log, told, job.request.cpus, os.geteuid())
            reference: ObjectRef[int] = task.remote(*arguments)
            return reference

        if nodes == 1:
            self._tasks[number] = _Sent(send(0, options), where)
        else:
            reference, group = ray_nodes.send_group(send, options, nodes, meeting)
            self._tasks[number] = _Sent(reference, where, group)
        return number

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Only its own: the tasks of another driver ended with it."""
        return set(numbers) & self._tasks.keys()

    def wait(self, timeout_s: float) -> list[Ended]:
        """One question to Ray for all tasks. Raises ``ClusterLostError``."""
        import ray

        if self._tasks:
            self._connection.answers()
        if not self._tasks:
            time.sleep(timeout_s)
            return []
        for sent in self._tasks.values():
            if sent.group is not None:
                self._connection.ask(sent.group.tell_of_lost)
        by_reference = {sent.reference: number for number, sent in self._tasks.items()}
        references = list(by_reference)
        done, _ = ray.wait(references, num_returns=1, timeout=timeout_s)
        if done:
            done, _ = ray.wait(references, num_returns=len(references), timeout=0)
        return [self._ended(by_reference[reference]) for reference in done]

    def _ended(self, number: str) -> Ended:
        import ray
        from ray import exceptions

        sent = self._tasks.pop(number)
        if sent.group is not None:
            self._connection.ask(sent.group.end)
            for told in sent.where.parent.glob(f"{sent.where.name}.*"):
                told.unlink(missing_ok=True)
        node_id = _content(sent.where)
        is_there = self._connection.answers()
        node = self._connection.ask(partial(ray_nodes.name_of, node_id)) if node_id and is_there else None
        called_off = number in self._called_off
        self._called_off.discard(number)
        try:
            return Ended(number, ray.get(sent.reference), node=node)
        except exceptions.TaskCancelledError:
            return Ended(number, None, "cancelled" if called_off else "preempted", node)
        except exceptions.OutOfMemoryError as error:
            return Ended(number, None, "out_of_memory", node, _first_line(error))
        except exceptions.RayTaskError as error:  # the task's own, before there was a worker
            return Ended(number, WorkerExit.MACHINE_LACKS, None, node, _first_line(error.cause))
        except exceptions.RayError as error:
            gone = node_id and is_there and self._connection.ask(partial(ray_nodes.is_gone, node_id))
            cause = "node_failure" if gone else "killed"
            return Ended(number, None, cause, node, _first_line(error))

    def cancel(self, numbers: Collection[str]) -> None:
        """Ask these tasks to write a checkpoint; those that wait in Ray are dropped."""
        known = set(numbers) & self._tasks.keys()
        self._called_off |= known
        self._end(known, hard=False)

    def stop(self, *, hard: bool = False) -> None:
        """Ask all tasks to write a checkpoint, or end them at once."""
        self._end(self._tasks.keys(), hard=hard)

    def _end(self, numbers: Collection[str], *, hard: bool) -> None:
        import ray

        if self._connection.is_lost:
            return
        for number in numbers:
            with suppress(ValueError):  # of a task that has just ended
                ray.cancel(self._tasks[number].reference, force=hard)
            if hard and (group := self._tasks[number].group) is not None:
                group.kill()

    def close(self) -> None:
        """Leave the cluster; one that was started for the sweep is stopped."""
        self._connection.close()


@cache
def _remote() -> Any:
    """Made once: Ray gives the tasks of one function to workers that are there already."""
    import ray

    from scalevec.orchestrator.executors.ray.task import run_command

    return ray.remote(run_command)


def _wanted(job: Job) -> dict[str, float]:
    """Return the resources of one trial, by Ray's names."""
    request = job.request
    memory_gb = request.memory_gb_of_node or 0.0
    return {"CPU": request.cpus_of_node, "GPU": request.gpus, "memory": memory_gb * ray_nodes.GIGABYTE}


def _is_countable(gpus: float) -> bool:
    """Ray shares one GPU, or gives several whole ones."""
    return gpus <= 1 or gpus == int(gpus)


def _content(where: Path) -> str | None:
    """The id of the node on which a task ran, once; None if it never ran."""
    try:
        node_id = where.read_text()
        where.unlink()
    except FileNotFoundError:
        return None
    return node_id


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0].strip()
