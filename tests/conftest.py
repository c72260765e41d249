from __future__ import annotations

import hypothesis
import pytest

from silchunk import progress

# The same examples in every run, so that a run fails by the change at hand alone. To look further:
# pytest --hypothesis-profile=search
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("search", derandomize=False)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def quiet_progress(monkeypatch):
    """What commands print is not to depend on how long they took."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 3600.0)


@pytest.fixture(scope="session")
def client():
    """Two worker processes on this machine, listening on loopback only."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="2GiB",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
