"""The command line: results on standard output, progress and messages on standard error."""

from silchunk.cli import bounds, cluster, estimates, report, scores, stores, sweep
from silchunk.cli.base import app

__all__ = ["app", "bounds", "cluster", "estimates", "report", "scores", "stores", "sweep"]
