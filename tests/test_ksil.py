"""K-Sil against its definition, and what holds of it by construction."""

from __future__ import annotations

import warnings

import ksil_oracle as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ksil_inputs import BOTH, DATA, SCHEDULE, blobs, compare, first_rows, weights_of
from sklearn.exceptions import ConvergenceWarning

from silchunk import InputError, SilchunkWarning
from silchunk.cluster.iteration import PATIENCE
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil, SphericalKSil

# The definition.


@BOTH
@pytest.mark.parametrize("objective", ["macro", "micro"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [name for name in DATA if name != "one feature"])
def test_definition(kind, objective, weighted, name):
    X = DATA[name]
    weights = weights_of(len(X)) if weighted else None
    to_the_end = 0
    for n_clusters in (2, 5):
        init = first_rows(X, n_clusters)
        _, expected = compare(X, init, kind=kind, objective=objective, sample_weight=weights)
        to_the_end += expected.n_sure == len(expected.history)
    assert to_the_end


@pytest.mark.parametrize("n_clusters", range(1, 13))
@pytest.mark.parametrize("name", ["blobs", "many features", "one feature"])
def test_definition_for_any_number_of_clusters(n_clusters, name):
    compare(DATA[name], first_rows(DATA[name], n_clusters, seed=n_clusters))


@pytest.mark.parametrize(
    "schedule",
    [
        {"temperature": 0.0},
        {"temperature": 3.0, "temperature_step": 1.0},
        {"temperature": 2.0, "temperature_range": (2.0, 2.0)},
        {"temperature": 0.5, "temperature_range": (0.1, 40.0), "temperature_step": 3.0},
        {"temperature": 1.0, "temperature_range": (0, 1), "temperature_step": 1.2},
    ],
)
def test_definition_for_any_schedule(schedule):
    for name in ("blobs", "no structure"):
        model, _ = compare(DATA[name], first_rows(DATA[name], 4), **schedule)
        if schedule["temperature"] == 0.0:
            assert {one.temperature for one in model.history_} == {0.0}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 60),
    d=st.integers(1, 4),
    n_clusters=st.integers(1, 12),
    kind=st.sampled_from([KSil, SphericalKSil]),
    objective=st.sampled_from(["macro", "micro"]),
    weighted=st.booleans(),
    far=st.integers(0, 3),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_definition_with_empty_clusters(seed, n, d, n_clusters, kind, objective, weighted, far):
    """Some first centres are where no point is."""
    rng = np.random.default_rng(seed)
    X = blobs(n, d, 3, seed=seed)
    n_clusters = min(n_clusters, n)
    init = first_rows(X, n_clusters, seed)
    init[rng.choice(n_clusters, min(far, n_clusters), replace=False)] *= -100.0
    weights = weights_of(n, seed) + (rng.integers(0, 3) == 0) if weighted else None
    if weights is not None:
        weights[0] = 1.0
    compare(X, init, kind=kind, objective=objective, sample_weight=weights, max_iter=15)


@BOTH
@pytest.mark.parametrize("least", [2, 5, 20])
@pytest.mark.parametrize("name", ["blobs", "many features", "no structure"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_definition_with_a_least_size(kind, least, name):
    X = DATA[name]
    for n_clusters in (2, 6):
        compare(X, first_rows(X, n_clusters), kind=kind, min_cluster_size=least)


def test_a_centre_stays_where_directions_cancel():
    opposite = [[1.0, 0.0], [-2.0, 0.0], [0.0, 5.0], [0.0, -3.0]]
    first = np.array([[0.6, 0.8]])
    model = SphericalKSil(1, init=first).fit(opposite)
    assert np.array_equal(model.cluster_centers_, first)
    compare(np.array(opposite), first, kind=SphericalKSil)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 7])
def test_definition_when_iterations_are_few(max_iter):
    X = DATA["no structure"]
    model, _ = compare(X, first_rows(X, 6), max_iter=max_iter)
    assert model.n_iter_ == max_iter


def test_float32_is_the_same_to_its_rounding():
    X = DATA["blobs"]
    init = first_rows(X, 5)
    single = KSil(5, init=init, **SCHEDULE, max_iter=5).fit(X.astype(np.float32))
    expected = oracle.ksil(X.astype(np.float32), init, **SCHEDULE, max_iter=5)
    assert np.array_equal(single.labels_, expected.labels)
    np.testing.assert_allclose(single.cluster_centers_, expected.centres, atol=1e-5, rtol=0)
    assert single.silhouette_ == pytest.approx(expected.objective, rel=1e-5)
    assert single.inertia_ == pytest.approx(expected.inertia, rel=1e-5)


# k-means from the same start.


@BOTH
@pytest.mark.parametrize("objective", ["macro", "micro"])
@pytest.mark.parametrize("weighted", [False, True])
def test_k_means_is_kept_unless_k_sil_is_clearly_better(kind, objective, weighted):
    kept = []
    for name in ("blobs", "many features", "no structure", "two sizes"):
        X = DATA[name]
        weights = weights_of(len(X)) if weighted else None
        for margin in (0.0, 1.0, 2.5, 10.0):
            model, expected = compare(
                X,
                first_rows(X, 4),
                kind=kind,
                objective=objective,
                sample_weight=weights,
                margin=margin,
            )
            by_k_means = expected.history[0][4] == 0.0  # its temperature
            assert model.algorithm_ == ("k-means" if by_k_means else "K-Sil")
            kept.append(model.algorithm_)
    assert {*kept} == {"k-means", "K-Sil"}


def test_k_means_that_is_kept_is_k_means():
    X = DATA["no structure"]
    init = first_rows(X, 5)
    model = KSil(5, init=init, margin=1e9).fit(X)
    plain = KMeans(5, init=init, max_iter=model.max_iter).fit(X)
    assert model.algorithm_ == "k-means"
    assert np.array_equal(model.cluster_centers_, plain.cluster_centers_)
    assert np.array_equal(model.labels_, plain.labels_)
    assert (model.history_, model.silhouette_) == (plain.history_, plain.silhouette_)


def test_each_start_is_of_both():
    X = blobs(400, 2, 8, seed=3)
    runs = []
    KSil(8, init="random", n_init=3, random_state=1, callback=runs.append).fit(X)
    firsts = [one for one in runs if one.iteration == 1]
    assert [one.temperature for one in firsts] == [0.0, 1.0] * 3
    begun = [one.macro for one in firsts]
    assert begun[::2] == begun[1::2]
    assert len({*begun}) == 3


@BOTH
def test_the_best_of_all_starts_are_held_against_each_other(kind):
    """Of k-means by inertia, as it is without K-Sil, and of K-Sil by its objective."""
    kept = []
    for seed in range(8):
        X = np.random.default_rng(seed).standard_normal((300, 2))
        several = {"init": "random", "n_init": 5, "random_state": seed}
        alone = kind(6, margin=None, **several).fit(X)
        plain = kind(6, margin=1e9, **several).fit(X)
        assert (alone.algorithm_, plain.algorithm_) == ("K-Sil", "k-means")
        if kind is KSil:
            same = KMeans(6, max_iter=plain.max_iter, **several).fit(X)
            assert np.array_equal(plain.cluster_centers_, same.cluster_centers_)
        own = oracle.directions(X) if kind is SphericalKSil else X
        spherical = kind is SphericalKSil
        found = oracle.look(own, plain.cluster_centers_, np.ones(len(X)), spherical)
        error = oracle.standard_error(found, np.ones(len(X)), "macro")
        gain = alone.silhouette_ - plain.silhouette_
        for margin in (0.99 * gain / error, 1.01 * gain / error) if gain > 0 else (0.0,):
            model = kind(6, margin=margin, **several).fit(X)
            better = gain > margin * error
            assert model.algorithm_ == ("K-Sil" if better else "k-means")
            expected = alone if better else plain
            assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
            assert model.history_ == expected.history_
            kept.append(model.algorithm_)
    assert {*kept} == {"k-means", "K-Sil"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_small_clusters_count_before_any_margin():
    rng = np.random.default_rng(26)
    X = rng.standard_normal((40, 2)) * rng.exponential(1, (40, 1)) ** 2
    options = {"random_state": 26, "min_cluster_size": 4}
    model = KSil(5, margin=1e9, **options).fit(X)
    plain = KMeans(5, max_iter=model.max_iter, **options).fit(X)
    small, other = ((np.bincount(one.labels_, minlength=5) < 4).sum() for one in (model, plain))
    assert small < other
    assert model.silhouette_ < plain.silhouette_
    assert model.algorithm_ == "K-Sil"


def test_weights_that_sum_to_next_to_nothing_are_told():
    X = DATA["blobs"]
    model = KSil(5, random_state=0)
    with pytest.warns(SilchunkWarning, match="sample_weight sums to 1, as if there were so many"):
        model.fit(X, sample_weight=np.full(len(X), 1 / len(X)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, sample_weight=np.ones(len(X)))
        KSil(5, margin=None).fit(X, sample_weight=np.full(len(X), 1 / len(X)))


def test_k_sil_without_temperature_runs_once():
    runs = []
    model = KSil(3, temperature=0.0, random_state=0, callback=runs.append).fit(DATA["blobs"])
    assert [one.iteration for one in runs].count(1) == 1
    assert model.algorithm_ == "K-Sil"


# Empty clusters.


def test_empty_clusters_start_again_at_the_farthest_points():
    """By hand. 100 is the farthest, but alone in its cluster; then come 3 and -2."""
    X = np.array([[0.0], [0.0], [3.0], [1.0], [100.0], [-2.0]])
    init = [[0.0], [120.0], [1000.0], [2000.0]]
    model = KSil(4, init=init, **SCHEDULE, max_iter=1).fit(X)
    assert model.history_[0].empty_clusters == 2
    assert model.labels_.tolist() == [0, 0, 2, 0, 1, 3]
    assert model.cluster_centers_[1:, 0].tolist() == [100.0, 3.0, -2.0]
    weight = np.exp(1 - 1 / 119 - 1)  # of 1, beside two points whose s is 1
    assert model.cluster_centers_[0, 0] == pytest.approx(weight / (weight + 2), rel=1e-12)


def test_points_at_their_centre_are_not_moved_to():
    X = np.array([[0.0], [0.0], [0.0], [5.0], [5.0]])
    init = [[0.0], [5.0], [900.0]]
    with pytest.warns(ConvergenceWarning, match="2 distinct clusters were found"):
        model = KSil(3, init=init, **SCHEDULE).fit(X)
    assert np.array_equal(model.cluster_centers_, init)


def test_a_cluster_never_waits_at_zero():
    """What is empty goes to a point, or stays where it was; not to the mean of nothing."""
    X = 50.0 + blobs(300, 3, 3, gap=2.0)
    for max_iter in (1, 2, 50):
        init = np.concatenate([X[:4], np.full((3, 3), -1000.0)])
        model = KSil(7, init=init, **SCHEDULE, max_iter=max_iter, objective="micro", tol=0)
        centres = model.fit(X).cluster_centers_
        inside = ((X.min(axis=0) <= centres) & (centres <= X.max(axis=0))).all(axis=1)
        assert (inside | (centres == -1000.0).all(axis=1)).all()
        assert [one.empty_clusters for one in model.history_][:2] == [3, 0][:max_iter]


@BOTH
@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
def test_fewer_distinct_points_than_clusters(kind, init):
    X = np.tile(np.array([[1.0, 1.0], [5.0, 1.0], [1.0, 9.0]]), (30, 1))
    with pytest.warns(ConvergenceWarning, match="distinct clusters were found, fewer than n_cl"):
        model = kind(5, init=init, n_init=1, random_state=0).fit(X)
    assert np.isfinite(model.cluster_centers_).all()
    assert len(np.unique(model.labels_)) <= 3
    if init != "random":
        assert len(np.unique(model.labels_)) == 3
        assert model.inertia_ == pytest.approx(0.0, abs=1e-25)
    for one in model.history_:
        assert np.isfinite(one).all()


# The best iterate.


@BOTH
@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_no_iterate_is_better_than_what_is_returned(kind, objective):
    spoiled = 0
    for seed in range(6):
        X = blobs(300, 3, 6, gap=1.0, seed=seed)
        model = kind(6, objective=objective, random_state=seed, **SCHEDULE).fit(X)
        scores = [getattr(one, objective) for one in model.history_]
        assert model.silhouette_ >= max(scores)
        spoiled += scores[-1] < max(scores)
    assert spoiled, "no run got worse at its end, so this has shown nothing"


def test_best_of_several_runs():
    X = blobs(400, 2, 8, seed=3)
    runs = []
    model = KSil(8, init="random", n_init=4, random_state=1, callback=runs.append, **SCHEDULE)
    model.fit(X)
    starts = [i for i, one in enumerate(runs) if one.iteration == 1]
    assert len(starts) == 4
    histories = [runs[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    assert model.history_ in histories
    assert model.silhouette_ >= max(one.macro for one in runs)


# Its end.


def test_iterations_end_when_the_objective_stands_still():
    """No structure, weights that change for ever: circles and patience end it."""
    ended = set()
    for seed in range(8):
        X = np.random.default_rng(seed).uniform(size=(250, 2))
        model = KSil(
            7,
            random_state=seed,
            temperature=5.0,
            temperature_range=(0.1, 60.0),
            temperature_step=4.0,
            tol=0,
            max_iter=1000,
            margin=None,
        ).fit(X)
        assert model.n_iter_ < 500
        scores = [one.macro for one in model.history_]
        late = len(scores) - 1 - int(np.argmax(scores))
        assert late <= PATIENCE == oracle.PATIENCE
        ended.add(late == PATIENCE)
    assert True in ended, "patience has ended none of the runs"


def test_large_temperatures():
    X = blobs(600, 3, 4, seed=8)
    for objective in ("macro", "micro"):
        model = KSil(
            4,
            temperature=500.0,
            temperature_range=(0.0, 500.0),
            objective=objective,
            random_state=0,
        ).fit(X)
        assert np.isfinite(model.cluster_centers_).all()
        assert all(np.isfinite(one).all() for one in model.history_)


def test_temperature_stays_in_its_range():
    X = DATA["no structure"]
    model = KSil(
        5,
        temperature=2.0,
        temperature_range=(1.5, 2.5),
        temperature_step=1.4,
        random_state=0,
        margin=None,
    ).fit(X)
    found = {one.temperature for one in model.history_}
    assert found <= {2.0, 2.5, 2.5 / 1.4, 1.5, 1.5 * 1.4, 2.0 / 1.4}
    assert 2.5 in found


# Parameters.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "inertia"}, "objective must be 'macro' or 'micro'; got 'inertia'"),
        ({"temperature": -1.0}, "temperature must be a number from 0 to 500; got -1.0"),
        ({"temperature": 501}, "temperature must be a number from 0 to 500; got 501"),
        ({"temperature": np.nan}, "temperature must be a number from 0 to 500; got nan"),
        ({"temperature": "hot"}, "temperature must be a number from 0 to 500; got 'hot'"),
        ({"temperature": True}, "temperature must be a number from 0 to 500; got True"),
        ({"temperature": 9.0}, r"temperature 9 is not in temperature_range \(0.5, 8\)"),
        ({"temperature": 0.1}, r"temperature 0.1 is not in temperature_range \(0.5, 8\)"),
        ({"margin": -1.0}, "margin must be a number from 0 to inf; got -1.0"),
        ({"margin": "all"}, "margin must be a number from 0 to inf; got 'all'"),
        ({"temperature_step": 0.9}, "temperature_step must be a number from 1 to inf; got 0.9"),
        ({"temperature_range": 3.0}, "temperature_range must be two numbers; got 3.0"),
        ({"temperature_range": (1, 2, 3)}, r"must be two numbers; got \(1, 2, 3\)"),
        ({"temperature_range": (-1, 2)}, "the first of temperature_range must be .* got -1"),
        ({"temperature_range": (2, 1)}, "the second of temperature_range .* from 2 to 500; got 1"),
        ({"temperature_range": (0, 600)}, "the second of temperature_range .* got 600"),
    ],
)
def test_wrong_parameters(parameters, message):
    options = {"temperature_range": (0.5, 8.0), **parameters}
    with pytest.raises(InputError, match=message):
        KSil(2, **options).fit(DATA["blobs"])


def test_row_of_zeros_has_no_direction():
    X = DATA["blobs"].copy()
    X[7] = 0.0
    with pytest.raises(InputError, match=r"X is zero throughout row 7"):
        SphericalKSil(2).fit(X)
    model = SphericalKSil(2, random_state=0).fit(DATA["blobs"])
    with pytest.raises(InputError, match=r"X is zero throughout row 7"):
        model.predict(X)
