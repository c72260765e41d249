from __future__ import annotations

import pytest

from silchunk import plan


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    """Five panels of 64 rows, so that small matrices have several."""
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 64)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.zarr"
