"""A bound on a Dask cluster: two worker processes on this machine, or a cluster that runs already.

    python examples/cluster_job.py
    python examples/cluster_job.py tcp://host:8786

Workers read the points themselves, so the file must be where all of them see it.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from silchunk import silhouette_bounds


def connected():
    """A client of the scheduler that is named on the command line, or of a small cluster."""
    if len(sys.argv) > 1:
        return Client(sys.argv[1])
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        memory_limit="2GiB",
        host="127.0.0.1",  # nobody else may send work
        dashboard_address=None,
    )
    return Client(cluster)


if __name__ == "__main__":  # worker processes import this file again
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder).resolve() / "points.npy"
        rng = np.random.default_rng(0)
        centres = rng.normal(0, 4, (5, 8))
        np.save(path, centres[rng.integers(5, size=4000)] + rng.standard_normal((4000, 8)))

        with connected() as client, client.cluster or client:
            on_cluster = silhouette_bounds(path, memory="1GiB")  # takes the active client
            print(on_cluster)
            on_threads = silhouette_bounds(path, memory="1GiB", scheduler="threads")
            print("the same bits as on threads:", on_cluster.asw == on_threads.asw)
