"""Plans: integers that add up, stay within the budget, and refuse what cannot fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silchunk import OverBudgetError, machine
from silchunk.engine import byte_budget, executor
from silchunk.errors import InputError
from silchunk.plan import LEAF_ROWS, RUNTIME_BYTES, format_bytes, plan_panels

jobs = st.fixed_dictionaries(
    {
        "n": st.integers(2, 10_000_000),
        "width": st.integers(1, 20_000),
        "itemsize": st.sampled_from([4, 8]),
        "budget_bytes": st.integers(1 << 20, 1 << 45),
        "concurrency": st.integers(1, 256),
        "from_points": st.booleans(),
        "resident_bytes": st.integers(0, 1 << 34),
        "chunk_rows": st.integers(1, 100_000),
        "outputs": st.integers(0, 3),
    }
)


@given(jobs)
def test_plans_keep_the_budget_or_say_what_they_need(job):
    try:
        plan = plan_panels(**job)
    except OverBudgetError:
        # Then not even the smallest of all plans fits.
        enough = plan_panels(**{**job, "budget_bytes": 1 << 60, "concurrency": 1})
        with pytest.raises(OverBudgetError, match="Raise memory= to"):
            plan_panels(**{**job, "concurrency": 1})
        assert enough.peak_bytes > job["budget_bytes"]
        return
    assert plan.peak_bytes <= plan.budget_bytes
    assert plan.peak_bytes >= plan.runtime_bytes + plan.concurrency * plan.panel_bytes * (
        min(plan.n, plan.panel_rows) / plan.panel_rows
    )
    assert 1 <= plan.concurrency <= job["concurrency"]
    assert plan.panel_rows % LEAF_ROWS == 0
    leaves = plan.panel_rows // LEAF_ROWS
    assert leaves & (leaves - 1) == 0, "panels are nodes of the summation tree"
    if plan.n < 1_000_000:
        panels = plan.panels()
        assert len(panels) == plan.n_panels
        assert panels[0][0] == 0
        assert panels[-1][1] == plan.n
        assert all(a[1] == b[0] for a, b in itertools.pairwise(panels))


@given(jobs)
def test_more_memory_never_hurts(job):
    try:
        less = plan_panels(**job)
    except OverBudgetError:
        return
    more = plan_panels(**{**job, "budget_bytes": 2 * job["budget_bytes"]})
    assert more.concurrency >= less.concurrency
    assert (more.concurrency, more.panel_rows) >= (less.concurrency, less.panel_rows)


def test_the_refusal_names_numbers_and_remedy():
    with pytest.raises(OverBudgetError, match="allows 256 MiB") as caught:
        plan_panels(
            n=3_000_000,
            width=32,
            itemsize=8,
            budget_bytes=256 << 20,
            concurrency=2,
            from_points=True,
        )
    message = str(caught.value)
    assert "3,000,000 points need at least" in message
    assert 'dtype="float32"' in message
    needed = message.split("Raise memory= to ")[1].split(" or more")[0]
    plan = plan_panels(
        n=3_000_000,
        width=32,
        itemsize=8,
        budget_bytes=byte_budget(needed.replace(" ", ""), executor("threads")),
        concurrency=2,
        from_points=True,
    )
    assert plan.panel_rows == LEAF_ROWS


def test_a_plan_prints():
    plan = plan_panels(
        n=40_000, width=32, itemsize=4, budget_bytes=1 << 30, concurrency=2, from_points=True
    )
    text = str(plan)
    assert "40,000 x 40,000" in text
    assert "157 of 256 rows, one task each" in text
    assert f"runtime           {format_bytes(RUNTIME_BYTES)}" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1 << 30, "1.0 GiB"),
        ((1 << 30) + 1, "1.1 GiB"),
        (160 << 20, "160 MiB"),
        ((160 << 20) + 1, "161 MiB"),
    ],
)
def test_bytes_for_people_round_up(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("memory", "count"),
    [
        ("1GiB", 1 << 30),
        ("512 MiB", 512 << 20),
        ("1GB", 10**9),
        (12345, 12345),
        (np.int64(7), 7),
        (1e9, 10**9),
    ],
)
def test_budgets(memory, count):
    assert byte_budget(memory, executor("threads")) == count


@pytest.mark.parametrize(
    "memory", ["lots", "", "GiB", "-1GiB", 0, -5, [1], True, float("inf"), 1.5]
)
def test_wrong_budgets(memory):
    with pytest.raises(InputError, match="memory must be"):
        byte_budget(memory, executor("threads"))


def test_control_group_limits(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/memory.max").write_text("1000\n")
    (tmp_path / "a/b/memory.max").write_text("max\n")
    (tmp_path / "memory/c").mkdir(parents=True)
    (tmp_path / "memory/c/memory.limit_in_bytes").write_text("2000\n")
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory,pids:/c\n3:cpu:/x\n0::/a/b\n")
    assert sorted(machine._control_group_limits(membership, tmp_path)) == [1000, 2000]
    assert machine._control_group_limits(tmp_path / "missing", tmp_path) == []
    assert 0 < machine.default_budget() < machine.memory_limit()
