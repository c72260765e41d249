"""Bound a file on a Dask cluster of processes on this machine.

python cluster-configs/local/run.py points.npy
"""

import sys
from pathlib import Path

import yaml
from distributed import Client, LocalCluster

from silchunk import silhouette_bounds

if __name__ == "__main__":  # worker processes import this file again
    if len(sys.argv) != 2 or not Path(sys.argv[1]).exists():
        sys.exit("usage: python run.py FILE, an existing .npy file or Zarr array")
    settings = yaml.safe_load(Path(__file__).with_name("cluster.yaml").read_text())
    # Loopback only, the dashboard too.
    cluster = LocalCluster(host="127.0.0.1", dashboard_address="127.0.0.1:0", **settings)
    with cluster, Client(cluster):
        print(silhouette_bounds(sys.argv[1], progress=True))
