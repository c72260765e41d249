"""What jobs leave, and what is to be found in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "cluster-configs"
METRIC = ("--metric", "canberra")  # slow enough to be cut off
SIZES = ("-m", 1, "-m", 20)  # smallest clusters
MEMORY = "1GiB"


@dataclass(frozen=True)
class Undisturbed:
    """What the jobs are to find, computed without a batch system, and the seconds it took."""

    points: Path
    store: Path
    build_seconds: float
    bound: dict[str, Any]
    bound_seconds: float


def content(store: Path) -> dict[str, bytes]:
    """The files of a store that hold distances."""
    return {
        str(p.relative_to(store)): p.read_bytes() for p in (store / "c").rglob("*") if p.is_file()
    }


def panels_recorded(store: Path) -> int:
    """Lines of a store's journal after its header, so far: one for each panel that was computed."""
    journal = store / "silchunk-journal.jsonl"
    return len(journal.read_text().splitlines()) - 1 if journal.exists() else 0


def pauses(log: str) -> list[tuple[int, int]]:
    """(panels done, panels there were to do) of each run that was stopped."""
    found = re.findall(r"stopped as asked after ([\d,]+) of ([\d,]+) panels", log)
    return [(int(done.replace(",", "")), int(of.replace(",", ""))) for done, of in found]


def bounds_in(log: str) -> list[dict[str, float]]:
    """The bounds of the result that a job printed as JSON."""
    log = f"\n{log}"
    start, end = log.index("\n{\n") + 1, log.index("\n}\n") + 2
    bounds: list[dict[str, float]] = json.loads(log[start:end])["bounds"]
    return bounds


def submitted_until_done(run: Callable[[str], str], checkpoint: Path, seconds: float) -> str:
    """Submit a bound, with more time again and again, until one is not cut off; returns its log.

    Whatever the machine is busy with, the first have too little time for a bound that takes
    ``seconds``, and some of them have time for a part of it. ``run(limit)`` submits one and returns
    its log.
    """
    limit, written, cut = seconds / 4, {}, []
    for _ in range(15):
        log = run(f"{limit:.1f}s")
        files = {file.name: file.stat().st_mtime_ns for file in checkpoint.glob("panel-*.npz")}
        # What has been recorded is not computed again.
        assert written.items() <= files.items()
        if not pauses(log):
            assert any(0 < done < of for done, of in cut), cut
            return log
        [(done, of)] = pauses(log)
        assert done == len(files) - len(written)
        cut.append((done, of))
        written = files
        limit *= 1.7
    raise AssertionError(f"not done after {len(cut)} jobs: {cut}")
