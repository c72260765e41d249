"""Run a silchunk command on a Dask cluster of the hosts in cluster.yaml.

python cluster-configs/ssh/run.py bound points.npy --checkpoint bound-of-points
"""

import signal
import subprocess
import sys
from pathlib import Path

import yaml
from distributed import SSHCluster

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python run.py COMMAND ..., as of silchunk, without --scheduler")
    settings = yaml.safe_load(Path(__file__).with_name("cluster.yaml").read_text())
    with SSHCluster(**settings) as cluster:
        command = [sys.executable, "-m", "silchunk", *sys.argv[1:]]
        child = subprocess.Popen([*command, "--scheduler", cluster.scheduler_address])
        # silchunk pauses at these; the cluster lives on until it has.
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: child.send_signal(number))
        signal.signal(signal.SIGINT, lambda number, frame: None)  # the prompt sends it to both
        code = child.wait()
    sys.exit(code)
