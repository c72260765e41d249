"""Every promise of the documentation names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs/clusters.md").read_text().split("## Promises")[1]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_promise_is_shown_by_tests_that_exist(row):
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
    assert named
    for file, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), test
