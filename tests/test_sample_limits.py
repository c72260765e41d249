"""Standard errors and upper limits from samples: they hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn import datasets

from silchunk import confidence, silhouette_upper_bound, silhouette_upper_bound_samples
from silchunk.confidence import standard_error, upper_limit
from silchunk.draws import draw_rows

N = 1000
POPULATIONS = {
    "bernoulli": (np.random.default_rng(0).random(N) < 0.05).astype(float),
    "uniform": np.random.default_rng(1).random(N),
    "two points": np.where(np.arange(N) < 300, 0.2, 0.7),
    "constant": np.full(N, 0.9),
    "few large": np.where(np.arange(N) < 20, 1.0, 0.01),
}
COVERAGE = 0.9


def most_failures(trials, level=1e-4):
    """As many as are still likely where the limit holds with the confidence that it says."""
    return stats.binom.isf(level, trials, 1 - COVERAGE)


def bernstein_limit(values, n, alpha):
    """Empirical Bernstein-Serfling limit, Bardenet & Maillard 2015, doi:10.3150/14-BEJ605."""
    s = len(values)
    rho = 1 - (s - 1) / n if s <= n / 2 else (1 - s / n) * (1 + 1 / s)
    log = math.log(5 / alpha)
    kappa = 7 / 3 + 3 / math.sqrt(2)
    return values.mean() + values.std() * math.sqrt(2 * rho * log / s) + kappa * log / s


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("s", [2, 10, 50, 400, 999])
def test_limits_lie_where_they_must(name, s):
    population = POPULATIONS[name]
    for seed in range(5):
        values = np.random.default_rng(seed).choice(population, s, replace=False)
        limits = [upper_limit(values, N, c) for c in (0.999, 0.95, 0.9, 0.5, 0.01)]
        assert (np.diff(limits) <= 0).all()
        assert limits[0] > limits[-1] or s > N / 2
        assert min(limits) >= values.sum() / N - 1e-15
        # What was not drawn is 1 at most.
        assert max(limits) <= min(1.0, (values.sum() + N - s) / N + 1e-15)
    whole = np.random.default_rng(0).permutation(population)
    assert upper_limit(whole, N, 0.9) == pytest.approx(population.mean(), abs=1e-15)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("s", [50, 500])
def test_limits_hold_as_often_as_they_say(name, s):
    population, trials = POPULATIONS[name], 400
    mean = math.fsum(population) / N
    failures = 0
    for seed in range(trials):
        values = np.random.default_rng(seed).choice(population, s, replace=False)
        failures += upper_limit(values, N, COVERAGE) < mean - 1e-12
    assert failures <= most_failures(trials)


def test_the_test_of_coverage_can_fail():
    # A limit that forgets half of its width does not pass it.
    population = POPULATIONS["bernoulli"]
    failures = 0
    for seed in range(400):
        values = np.random.default_rng(seed).choice(population, 50, replace=False)
        failures += (upper_limit(values, N, COVERAGE) + values.mean()) / 2 < population.mean()
    assert failures > most_failures(400)


def test_limits_get_closer_and_are_closer_than_simpler_ones():
    population, alpha = POPULATIONS["uniform"], 1 - COVERAGE
    distances = []
    for s in (20, 50, 100, 200, 400, 800):
        rows = [np.random.default_rng(seed).choice(population, s, False) for seed in range(100)]
        ours = np.mean([upper_limit(values, N, COVERAGE) for values in rows])
        theirs = np.mean([min(1.0, bernstein_limit(values, N, alpha)) for values in rows])
        distances.append(ours - population.mean())
        assert ours < theirs
        # Not far above what a normal distribution would give, which may fail more often.
        width = stats.norm.isf(alpha) * population.std() * math.sqrt((1 - s / N) / s)
        assert distances[-1] < 2.5 * width
    assert (np.diff(distances) < 0).all()
    assert distances[0] > 4 * distances[-1]


def test_the_order_of_the_draw_is_what_the_limit_rests_on():
    values = np.r_[np.zeros(40), np.ones(10)]
    shuffled = np.random.default_rng(0).permutation(values)
    assert upper_limit(values, N, 0.9) != upper_limit(shuffled, N, 0.9)
    assert standard_error(values, N) == pytest.approx(standard_error(shuffled, N), rel=1e-14)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 60), elements=st.floats(0, 1)),
    st.integers(0, 10**9),
    st.floats(0.01, 0.999),
)
@example(np.zeros(5), 0, 0.9)
@example(np.zeros(5), 1, 0.9)
@example(np.ones(5), 100, 0.9)
def test_any_values_have_a_limit(values, more, level):
    n = len(values) + more
    limit = upper_limit(values, n, level)
    assert values.sum() / n - 1e-12 <= limit <= (values.sum() + more) / n + 1e-12
    assert limit <= 1.0
    rising = upper_limit(np.minimum(values + 0.1, 1), n, level) if not more else limit
    assert rising >= limit


def test_standard_errors():
    values = np.array([0.1, 0.4, 0.4, 0.9])
    expected = np.std(values, ddof=1) / 2 * math.sqrt(1 - 4 / 10)
    assert standard_error(values, 10) == pytest.approx(expected, rel=1e-14)
    assert standard_error(values, 4) == 0.0
    assert standard_error(np.full(5, 0.5), 100) == 0.0
    assert confidence.standard_error(values[:1], 10) == math.inf


@pytest.mark.slow
def test_limits_hold_for_real_data():
    X = datasets.load_digits().data[:1500]
    full = silhouette_upper_bound_samples(X)
    bound, trials = silhouette_upper_bound(X), 200
    limits = [
        silhouette_upper_bound(X, sample_size=60, random_state=r, confidence=COVERAGE).upper_limit
        for r in range(trials)
    ]
    assert sum(limit < bound for limit in limits) <= most_failures(trials)
    # And they tell something: the bounds of the points are all in [0, 1].
    assert np.mean(limits) - bound < 0.1
    for r in range(5):
        expected = upper_limit(full[draw_rows(60, r, 1500)], 1500, COVERAGE)
        assert limits[r] == pytest.approx(expected, abs=1e-12)
