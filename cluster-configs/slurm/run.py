"""Bound a file on workers that SLURM starts as jobs, as jobqueue.yaml says.

python cluster-configs/slurm/run.py points.npy --jobs 4
"""

import argparse
from pathlib import Path

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client

from silchunk import silhouette_bounds

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bound a file on workers that SLURM starts.")
    parser.add_argument("file", help="a .npy file or Zarr array on a file system of all nodes")
    parser.add_argument("--jobs", type=int, default=4, help="workers, each a job [4]")
    parser.add_argument("--metric", default="euclidean", help="any of silchunk's [euclidean]")
    parser.add_argument("--checkpoint", help="folder for finished panels, to go on after a stop")
    given = parser.parse_args()
    dask.config.refresh(paths=[*dask.config.paths, str(Path(__file__).parent)])
    shared = dask.config.get("temporary-directory", None) or str(Path.cwd())
    with (
        dask.config.set({"temporary-directory": shared}),
        SLURMCluster() as cluster,
        Client(cluster),
    ):
        # As many at all times: a job that has reached its lifetime is followed by a new one.
        cluster.adapt(minimum_jobs=given.jobs, maximum_jobs=given.jobs)
        bounds = silhouette_bounds(
            given.file, metric=given.metric, checkpoint=given.checkpoint, progress=True
        )
        print(bounds)
