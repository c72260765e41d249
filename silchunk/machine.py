"""What this machine or its container allows."""

from __future__ import annotations

import os
from pathlib import Path

# Part of the limit that is used when no budget is given; the rest is other people's.
DEFAULT_SHARE = 0.6


def memory_limit() -> int:
    """Bytes this process may use: physical memory or the limit of its control group, if lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_control_group_limits()])


def default_budget(limit: int | None = None) -> int:
    """The byte budget where none is given: a share of ``limit``, by default this machine's."""
    return int(DEFAULT_SHARE * (memory_limit() if limit is None else limit))


def _control_group_limits(
    membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Limits of this process's control group and of every group above it (versions 1 and 2)."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / group.lstrip("/")
        for place in [folder, *folder.parents]:
            if not place.is_relative_to(base):
                break
            try:
                text = (place / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                limits.append(int(text))
    return limits
