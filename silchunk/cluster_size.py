"""How many workers, threads and bytes a bound or a store of distances is worth on a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from silchunk import engine
from silchunk.engine.flight import EARLY_BYTES, MESSAGE_SECONDS, SENT_AHEAD
from silchunk.errors import InputError, OverBudgetError
from silchunk.estimate import Estimate
from silchunk.inbox import LOOK_AHEAD
from silchunk.machine import DEFAULT_SHARE
from silchunk.plan import LEAF_ROWS, PREFERRED_PANEL_ROWS, Plan, format_bytes

MIB = 1 << 20

# Threads of a worker: see `cluster_table`.
PREFERRED_THREADS = 4
# Largest number of nodes that is tabulated by itself.
MOST_NODES = 512
# Longer panels may take this much longer in all: they read the input less often.
SLACK = 1.05
# Seconds from one message of a trivial panel to the next in the same thread, and of the driver and
# scheduler for a message, with room: benchmarks/engine.py and benchmarks/schedule.py measure them.
ROUND_TRIP_SECONDS = 0.02
RESULT_SECONDS = 0.005


@dataclass(frozen=True)
class ClusterSize:
    """A number of nodes, and what to give the workers on them.

    Attributes
    ----------
    nodes : int
    workers_per_node, threads_per_worker : int
    memory_bytes : int
        What to give as ``memory=`` or ``--memory``; for one worker process.
    limit_bytes : int
        Memory limit to give a worker, of which ``memory_bytes`` is the default share.
    plan : Plan
        How the job is cut with that.
    seconds : float
        Expected time, by `schedule_seconds`.
    efficiency : float
        Part of the threads' time in which they have a panel.
    driver_bytes : int
        Most memory of the process that asks: its libraries, results, and those that wait for
        others before them.
    """

    nodes: int
    workers_per_node: int
    threads_per_worker: int
    memory_bytes: int
    limit_bytes: int
    plan: Plan
    seconds: float
    efficiency: float
    driver_bytes: int

    @property
    def workers(self) -> int:
        """Worker processes on all nodes."""
        return self.nodes * self.workers_per_node

    @property
    def at_once(self) -> int:
        """Panels at once on all nodes."""
        return self.workers * self.plan.concurrency


@dataclass(frozen=True)
class _OnNode:
    """Workers of one node, and the plan of the memory that they may use at most."""

    workers: int
    threads: int
    limit: int  # bytes for each
    plan: Plan


def schedule_seconds(
    n_panels: int,
    panel_seconds: float,
    at_once: int,
    *,
    round_trip_seconds: float = ROUND_TRIP_SECONDS,
    result_seconds: float = RESULT_SECONDS,
) -> float:
    """Time of a job whose panels take equally long.

    Short panels travel several in one message, see `panels_together`. Each thread takes
    ``rounds = ceil(messages / at_once)`` messages, one after the other. With two sent ahead it is
    idle only where a round trip takes longer than a message: one then takes
    ``max(message, (message + round trip) / 2)``. The driver takes results one by one, from the
    first message on; it is the limit where that is slower. In all
    ``max(rounds * each, message + messages * result) + round trip``.

    Parameters
    ----------
    n_panels, at_once : int
        Panels, and how many are computed at once.
    panel_seconds : float
        Time of one panel where all threads are at work.
    round_trip_seconds, result_seconds : float
        From a message of a trivial panel to the next in one thread; of the driver for each message.
    """
    together = panels_together(n_panels, panel_seconds, at_once)
    messages = math.ceil(n_panels / together)
    message_seconds = together * panel_seconds
    rounds = math.ceil(messages / at_once)
    each = max(message_seconds, (message_seconds + round_trip_seconds) / SENT_AHEAD)
    taken = message_seconds + messages * result_seconds
    return max(rounds * each, taken) + round_trip_seconds


def panels_together(n_panels: int, panel_seconds: float, at_once: int) -> int:
    """Panels of one message, once their time is known and while many are left."""
    towards_the_end = n_panels // at_once
    by_time = MESSAGE_SECONDS / max(panel_seconds, MESSAGE_SECONDS / n_panels)
    return max(1, min(int(by_time), towards_the_end))


def cluster_table(
    estimate: Estimate,
    *,
    node_memory: int | str | None = None,
    node_cores: int | None = None,
    nodes: Sequence[int] | None = None,
) -> list[ClusterSize]:
    """Workers, threads and memory for numbers of nodes, and the time to expect.

    Parameters
    ----------
    estimate : Estimate
        Of `estimate_bounds` or `estimate_distances`.
    node_memory : int or str, optional
        Bytes of one node; by default this machine's.
    node_cores : int, optional
        Cores of one node, each taken to be as fast as one of this machine; by default as many.
    nodes : sequence of int, optional
        By default 1, 2, 4, ... until there are as many threads as panels.

    Returns
    -------
    list of ClusterSize
        One for each number of nodes.

    Raises
    ------
    OverBudgetError
        Not even one panel fits into a node.
    InputError
        A number below one, or memory that is none.

    Notes
    -----
    Threads against processes. Each process takes an interpreter and libraries (232 MiB), results,
    and its own connection; each thread a panel. Threads therefore need less memory, and are fewer
    to look after for the scheduler. Kernels and NumPy's sort release the interpreter lock, but
    what is between them holds it: many threads would wait for each other, and a worker also
    answers the scheduler. So workers have up to four threads; more only where memory does not allow
    that many processes, since one that waits a little is better than a core that stands idle.

    Memory. ``memory=`` is the whole process's peak. Dask begins to spill at 70% of a worker's
    limit and pauses it at 80%, so the limit is what makes ``memory=`` its default share of 60%.
    Both are no larger than the plan needs: more would not make panels faster.

    Panels. As long as they fit, but not so long that the last round leaves threads idle: no
    shorter than 256 rows for that, since short panels read and prepare the input more often.
    """
    where = engine.executor("threads")
    cores = where.concurrency if node_cores is None else _count(node_cores, "node_cores")
    limit = where.memory_bytes if node_memory is None else _bytes(node_memory, where)
    on_node = _on_node(estimate, limit, cores)
    if nodes is not None:
        return [_sized(estimate, on_node, _count(count, "nodes")) for count in nodes]
    rows, count = [_sized(estimate, on_node, 1)], 2
    while count <= MOST_NODES and rows[-1].at_once < rows[-1].plan.n_panels:
        rows.append(_sized(estimate, on_node, count))
        count *= 2
    return rows


def _on_node(estimate: Estimate, limit: int, cores: int) -> _OnNode:
    """How a node's cores are shared out to processes."""
    best: tuple[tuple[int, int, bool, int], _OnNode] | None = None
    for threads in range(1, cores + 1):
        workers = cores // threads
        # A process may use less than all cores could, where memory is short.
        try:
            plan = estimate.plan_on_workers(_budget(limit // workers), threads)
        except OverBudgetError:
            continue
        rows = min(plan.panel_rows, PREFERRED_PANEL_ROWS)
        few = threads <= PREFERRED_THREADS
        rank = (workers * plan.concurrency, rows, few, threads if few else -threads)
        if best is None or rank > best[0]:
            best = rank, _OnNode(workers, plan.concurrency, limit // workers, plan)
    if best is None:
        try:
            estimate.plan_on_workers(_budget(limit), 1)
        except OverBudgetError as error:
            raise OverBudgetError(
                f"a node of {format_bytes(limit)} is too small, of which {DEFAULT_SHARE:.0%} are "
                f"planned with: {error}"
            ) from error
        raise AssertionError("a single worker fits")
    return best[1]


def _sized(estimate: Estimate, on_node: _OnNode, nodes: int) -> ClusterSize:
    at_once = nodes * on_node.workers * on_node.threads
    plans = _shorter(estimate, on_node)
    times = [
        schedule_seconds(plan.n_panels, _panel_seconds(estimate, plan), at_once) for plan in plans
    ]
    i = next(i for i, seconds in enumerate(times) if seconds <= SLACK * min(times))
    plan = plans[i]
    working = plan.n_panels * _panel_seconds(estimate, plan)
    each = estimate.waiting_bytes(plan)
    held = min(max(LOOK_AHEAD * at_once * each, EARLY_BYTES), plan.n_panels * each)
    return ClusterSize(
        nodes=nodes,
        workers_per_node=on_node.workers,
        threads_per_worker=on_node.threads,
        memory_bytes=plan.budget_bytes,
        limit_bytes=min(on_node.limit, _round_up(int(plan.budget_bytes / DEFAULT_SHARE) + 1)),
        plan=plan,
        seconds=times[i],
        efficiency=working / (times[i] * at_once),
        driver_bytes=plan.runtime_bytes + plan.resident_bytes + held,
    )


def _shorter(estimate: Estimate, on_node: _OnNode) -> list[Plan]:
    """Plans of the least memory for panels of the most rows, half of them, and so on."""
    plan = on_node.plan
    plans: list[Plan] = []
    while not plans or plan.panel_rows >= PREFERRED_PANEL_ROWS:
        needed = min(_round_up(plan.peak_bytes), on_node.plan.budget_bytes)
        plans.append(estimate.plan_on_workers(needed, on_node.threads))
        if plan.panel_rows <= LEAF_ROWS:
            break
        fewer = estimate.plan_on_workers(plan.peak_bytes - 1, on_node.threads)
        if fewer.concurrency < plan.concurrency:  # memory is that of the shortest already
            break
        plan = fewer
    return plans


def _panel_seconds(estimate: Estimate, plan: Plan) -> float:
    return estimate.row_seconds * min(plan.panel_rows, plan.n)


def _budget(limit: int) -> int:
    return int(DEFAULT_SHARE * limit) // MIB * MIB


def _round_up(count: int) -> int:
    return -(-count // MIB) * MIB


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be whole numbers of 1 or more; got {value!r}.")
    return value


def _bytes(value: int | str, where: engine.Executor) -> int:
    try:
        return engine.byte_budget(value, where)
    except InputError as error:
        raise InputError(
            f'node_memory must be bytes or a string such as "64GiB"; got {value!r}.'
        ) from error
