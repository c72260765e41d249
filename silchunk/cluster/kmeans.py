"""k-means."""

from __future__ import annotations

from silchunk.cluster.base import CentroidClusterer


class KMeans(CentroidClusterer):
    """k-means by Lloyd's iterations, one read of the points for each.

    Parameters
    ----------
    n_clusters : int
        K.
    init : "k-means++", "k-means||", "random" or array (K, d)
        First centres. "k-means++" is taken from a sample where the points are many; "k-means||"
        (Bahmani et al. 2012, arXiv:1203.6402) passes over all of them a few times.
    n_init : int or "auto"
        Runs, of which the best is kept; "auto": 10 from random points, else 1. From an array
        there is but one.
    max_iter : int
        Iterations of one run at most.
    tol : float
        Centres that move by no more than this, relative to the variance of the features (as
        scikit-learn has it), stand still.
    min_cluster_size : int
        Points that each cluster should have: one of fewer starts again elsewhere, and centres with
        fewer such clusters are kept before all others. Else the best clustering may be one far
        outlier against the rest.
    random_state : None, int, Generator or RandomState
    memory : int or str, optional
        Peak bytes of a process, such as "1GiB"; default 60% of the machine.
    scheduler : None, "threads", "synchronous" or distributed.Client
    progress : None, bool or callable
    checkpoint : path, optional
        File that keeps the state after each iteration; a fit that was killed goes on from it.
    callback : callable, optional
        Called with each `Iteration`.

    Attributes
    ----------
    cluster_centers_ : (K, d) float64
    labels_ : (n,) int32
        As ``predict`` gives them. Where they are many, mapped from a file that is gone with them.
    inertia_ : float
        Sum of squared distances of points to their centre.
    n_iter_ : int
    history_ : list of Iteration
        Of the best run: macro and micro mean of s = 1 - a/b (a, b the distances to the nearest and
        second nearest centre), inertia, temperature, shift, labels changed, empty clusters.
    silhouette_ : float
        Macro mean of s for the final centres.
    n_features_in_ : int

    Notes
    -----
    O(n K d) time an iteration, and one read of the points. Results are the same for any chunking,
    number of threads or workers. A cluster that loses its points starts again at the point
    that is farthest from its centre.

    Examples
    --------
    >>> from silchunk.cluster.kmeans import KMeans
    >>> found = KMeans(2, random_state=0).fit([[0, 1], [0, 3], [9, 1], [9, 3]])
    >>> sorted(found.cluster_centers_.tolist())
    [[0.0, 2.0], [9.0, 2.0]]
    """
