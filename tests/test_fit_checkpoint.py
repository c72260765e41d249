"""Checkpoints of fits: the same bits wherever a fit was cut off, and nothing foreign is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

from silchunk import ForeignStoreError, InputError, StaleStoreError
from silchunk.cluster import saved
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil, SphericalKSil

# No structure, so that there are iterations enough to be cut off at.
X = np.random.default_rng(0).uniform(1.0, 2.0, (600, 3))
WEIGHTS = np.random.default_rng(1).integers(0, 4, 600) / 2.0


class CutError(Exception):
    """Raised in place of a kill."""


class CutAfter:
    """A callback that cuts off at the iteration of that number, of all runs together."""

    def __init__(self, n_left):
        self.n_left = n_left

    def __call__(self, iteration):
        if not self.n_left:
            raise CutError
        self.n_left -= 1


CASES = {
    "k-means": lambda **more: KMeans(6, random_state=0, tol=0, max_iter=6, **more),
    "K-Sil": lambda **more: KSil(6, random_state=0, max_iter=6, margin=None, **more),
    "K-Sil or k-means": lambda **more: KSil(6, random_state=0, max_iter=6, **more),
    "micro": lambda **more: KSil(
        6, random_state=2, objective="micro", max_iter=6, init="k-means||", margin=0.0, **more
    ),
    "spherical": lambda **more: SphericalKSil(6, random_state=0, max_iter=6, margin=0.0, **more),
    "runs": lambda **more: KSil(5, random_state=0, n_init=3, max_iter=3, **more),
    "random": lambda **more: KMeans(5, init="random", n_init=3, random_state=1, max_iter=3, **more),
    "given": lambda **more: KSil(
        4, init=np.concatenate([X[:2], X[:2] + 50.0]), max_iter=6, tol=0, **more
    ),
}
EVERY = pytest.mark.parametrize("name", CASES)


def model_of(name, **more):
    return CASES[name](scheduler="synchronous", **more)


def check_same(model, expected):
    assert model.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.history_ == expected.history_
    assert [type(value) for value in model.history_[0]] == [
        type(value) for value in expected.history_[0]
    ]
    assert model.n_iter_ == expected.n_iter_
    assert model.inertia_ == expected.inertia_
    assert model.silhouette_ == expected.silhouette_
    assert getattr(model, "algorithm_", None) == getattr(expected, "algorithm_", None)


def cut(model, n_done, points=X, **options):
    """Fit until so many iterations are kept."""
    with pytest.raises(CutError):
        model.set_params(callback=CutAfter(n_done)).fit(points, **options)
    return model


def n_iterations(name):
    """Of all runs."""
    seen = []
    model_of(name, callback=seen.append).fit(X)
    return len(seen)


# Going on.


@EVERY
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_cut_off_at_any_iteration(name, weights, tmp_path):
    seen = []
    expected = model_of(name, callback=seen.append).fit(X, sample_weight=weights)
    assert len(seen) > 2
    for n_done in range(len(seen)):
        path = tmp_path / f"{n_done}.npz"
        cut(model_of(name, checkpoint=path), n_done, sample_weight=weights)
        assert path.exists() == (n_done > 0)
        rest = []
        again = model_of(name, checkpoint=path, callback=rest.append)
        again.fit(X, sample_weight=weights)
        check_same(again, expected)
        assert rest == seen[n_done:]  # nothing is done twice


@EVERY
def test_cut_off_at_every_iteration(name, tmp_path):
    """One after the other, of a single checkpoint."""
    expected = model_of(name).fit(X)
    path = tmp_path / "fit"
    for _ in range(n_iterations(name)):
        cut_one = model_of(name, checkpoint=path, callback=CutAfter(1))
        try:
            cut_one.fit(X)
        except CutError:
            continue
    check_same(model_of(name, checkpoint=path).fit(X), expected)


@EVERY
def test_finished_fit_returns_at_once(name, tmp_path):
    path = tmp_path / "fit"
    expected = model_of(name, checkpoint=path).fit(X)
    content = path.read_bytes()
    seen = []
    again = model_of(name, checkpoint=path, callback=seen.append).fit(X)
    assert seen == []
    check_same(again, expected)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["fit"]


@EVERY
def test_cut_off_between_the_last_iteration_and_the_end_of_a_run(name, tmp_path, monkeypatch):
    expected = model_of(name).fit(X)
    path = tmp_path / "fit"
    write = saved.Checkpoint.write

    def cut_at_the_end(checkpoint, progress):
        if progress.state is None:
            raise CutError
        write(checkpoint, progress)

    with monkeypatch.context() as patched:
        patched.setattr(saved.Checkpoint, "write", cut_at_the_end)
        with pytest.raises(CutError):
            model_of(name, checkpoint=path).fit(X)
    rest = []
    check_same(model_of(name, checkpoint=path, callback=rest.append).fit(X), expected)
    assert not rest or rest[0].iteration == 1  # only runs that are left


def test_checkpoint_changes_nothing(tmp_path):
    check_same(model_of("K-Sil", checkpoint=tmp_path / "fit").fit(X), model_of("K-Sil").fit(X))


@pytest.mark.parametrize("n_done", [1, 4, 6])
def test_new_randomness_is_kept(n_done, tmp_path):
    """random_state=None: the runs that are left are those that were begun with."""
    path = tmp_path / "fit"
    seen = []

    def noted(iteration):
        seen.append(iteration)
        if len(seen) > n_done:
            raise CutError

    options = {"n_init": 3, "max_iter": 3, "init": "random", "checkpoint": path}
    with pytest.raises(CutError):
        KSil(5, callback=noted, **options).fit(X)
    copy = path.read_bytes()
    fits = []
    for _ in range(2):  # a second time from the same state
        path.write_bytes(copy)
        fits.append(KSil(5, **options).fit(X))
    check_same(*fits)
    assert fits[0].history_ != KSil(5, **{**options, "checkpoint": None}).fit(X).history_


def test_going_on_otherwise_stored_and_run(tmp_path):
    """Where points lie, memory and threads are no part of what a fit is."""
    expected = model_of("K-Sil").fit(X)
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(77, 2))
    np.save(tmp_path / "x.npy", X)
    path = tmp_path / "fit"
    cut(model_of("K-Sil", checkpoint=path), 3, tmp_path / "x.npy")
    model = model_of("K-Sil", checkpoint=str(path)).set_params(
        memory="400MiB", scheduler="threads", progress=False
    )
    check_same(model.fit(tmp_path / "x.zarr"), expected)


JOB = """
import os, signal, sys
import numpy as np
from silchunk.cluster.ksil import KSil

seen = []

def killed(iteration):
    seen.append(iteration)
    if len(seen) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

model = KSil(6, random_state=0, max_iter=6, scheduler="synchronous", checkpoint="fit")
model.set_params(callback=killed).fit("x.npy")
np.savez("found.npz", centres=model.cluster_centers_, labels=model.labels_, history=model.history_)
"""


@pytest.mark.slow
def test_killed(tmp_path):
    np.save(tmp_path / "x.npy", X)
    seen = []
    expected = model_of("K-Sil or k-means", callback=seen.append).fit(X)
    # Once while k-means runs, and once while K-Sil does.
    assert seen[2].temperature == 0 < seen[2 + 5].temperature
    for at in (3, 6, -1):
        command = [sys.executable, "-c", JOB, str(at)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
        assert done.returncode == (0 if at < 0 else -signal.SIGKILL), done.stderr
        assert (tmp_path / "fit").exists()
    with np.load(tmp_path / "found.npz") as found:
        assert found["centres"].tobytes() == expected.cluster_centers_.tobytes()
        assert np.array_equal(found["labels"], expected.labels_)
        assert np.array_equal(found["history"], np.array(expected.history_))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"x" * 100_000])
def test_torn_temporary_file_is_harmless(content, tmp_path):
    """What a kill leaves in the middle of a write, before and after there is a checkpoint."""
    torn = tmp_path / "fit.part"
    torn.write_bytes(content)
    path = tmp_path / "fit"
    cut(model_of("K-Sil", checkpoint=path), 2)
    torn.write_bytes(content)
    check_same(model_of("K-Sil", checkpoint=path).fit(X), model_of("K-Sil").fit(X))
    assert os.listdir(tmp_path) == ["fit"]


def test_failed_write_leaves_the_last_state(tmp_path, monkeypatch):
    """Renamed only once it is on disk."""
    path = tmp_path / "fit"
    cut(model_of("K-Sil", checkpoint=path), 2)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        model_of("K-Sil", checkpoint=path).fit(X)
    assert path.read_bytes() == before
    monkeypatch.undo()
    check_same(model_of("K-Sil", checkpoint=path).fit(X), model_of("K-Sil").fit(X))


# Refusals.


def changed(where):
    other = X.copy()
    other[where] = np.nextafter(other[where], 9.0)
    return other


@pytest.mark.parametrize(
    ("model", "points", "weights", "message"),
    [
        (KSil(6, random_state=0), changed((0, 0)), WEIGHTS, "points was '"),
        (KSil(6, random_state=0), changed((599, 2)), WEIGHTS, "points was '"),
        (KSil(6, random_state=0), X[::-1], WEIGHTS, "points was '"),
        (KSil(6, random_state=0), X.astype(np.float32), WEIGHTS, "points was '"),
        (KSil(6, random_state=0), X, WEIGHTS[::-1], "weights was '"),
        (KSil(6, random_state=0), X, None, "weights was '.*now None"),
        (KSil(5, random_state=0), X, WEIGHTS, "n_clusters was 6, now 5"),
        (KSil(6, random_state=1), X, WEIGHTS, "random_state was 0, now 1"),
        (KSil(6, random_state=0, max_iter=50), X, WEIGHTS, "max_iter was .*, now 50"),
        (KSil(6, random_state=0, tol=0.5), X, WEIGHTS, "tol was .*, now 0.5"),
        (KSil(6, random_state=0, n_init=2), X, WEIGHTS, "n_init was 'auto', now 2"),
        (KSil(6, random_state=0, init="random"), X, WEIGHTS, r"init was .*, now 'random'"),
        (KSil(6, random_state=0, init=X[:6]), X, WEIGHTS, r"init was .*, now '[0-9a-f]{64}'"),
        (KSil(6, random_state=0, objective="micro"), X, WEIGHTS, "objective was 'macro'"),
        (KSil(6, random_state=0, temperature=0.0), X, WEIGHTS, "temperature was .*, now 0.0"),
        (SphericalKSil(6, random_state=0), X, WEIGHTS, "algorithm was 'KSil', now 'Sph"),
        (KMeans(6, random_state=0), X, WEIGHTS, "algorithm was 'KSil', now 'KMeans'"),
    ],
)
def test_checkpoint_of_another_fit(model, points, weights, message, tmp_path):
    path = tmp_path / "fit"
    cut(KSil(6, random_state=0, checkpoint=path), 2, sample_weight=WEIGHTS)
    content = path.read_bytes()
    model.set_params(checkpoint=path)
    with pytest.raises(StaleStoreError, match=f"is the checkpoint of another fit: .*{message}"):
        model.fit(points, sample_weight=weights)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["fit"]


def foreign_text(path):
    path.write_text("my notes\n")


def foreign_nothing(path):
    path.write_bytes(b"")


def foreign_npz(path):
    with path.open("wb") as file:
        np.savez(file, X=X)


def foreign_facts(path):
    with path.open("wb") as file:
        np.savez(file, facts=np.frombuffer(b'{"kind": "other", "header": {}}', np.uint8))


def foreign_numbers(path):
    with path.open("wb") as file:
        np.savez(file, facts=np.arange(9.0))


def foreign_list(path):
    with path.open("wb") as file:
        np.savez(file, facts=np.frombuffer(b"[1, 2]", np.uint8))


def foreign_npy(path):
    with path.open("wb") as file:
        np.save(file, X)


def foreign_pickle(path):
    with path.open("wb") as file:
        np.save(file, np.array([{}], object), allow_pickle=True)


def torn(path):
    KSil(6, random_state=0, max_iter=2, checkpoint=path).fit(X)
    path.write_bytes(path.read_bytes()[:-300])


def flipped(path):
    """A byte of the centres is another one."""
    model = KSil(6, random_state=0, max_iter=2, checkpoint=path).fit(X)
    content = path.read_bytes()
    at = content.index(model.cluster_centers_.tobytes())
    path.write_bytes(content[: at + 9] + bytes([content[at + 9] ^ 1]) + content[at + 10 :])


@pytest.mark.parametrize(
    "make",
    [
        foreign_text,
        foreign_nothing,
        foreign_npz,
        foreign_facts,
        foreign_numbers,
        foreign_list,
        foreign_npy,
        foreign_pickle,
        torn,
        flipped,
    ],
)
def test_foreign_file(make, tmp_path):
    path = tmp_path / "fit"
    make(path)
    content = path.read_bytes()
    with pytest.raises(ForeignStoreError, match="fit is not the checkpoint of a silchunk fit"):
        KSil(6, random_state=0, checkpoint=path).fit(X)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["fit"]


def test_foreign_folder(tmp_path):
    path = tmp_path / "fit"
    path.mkdir()
    (path / "kept").write_text("kept")
    with pytest.raises(ForeignStoreError, match="fit is not the checkpoint"):
        KSil(6, checkpoint=path).fit(X)
    assert os.listdir(path) == ["kept"]


@pytest.mark.parametrize("there", [True, False])
def test_symlink(there, tmp_path):
    """Even to a checkpoint: renaming would put a file in its place."""
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        KSil(6, random_state=0, checkpoint=target).fit(X)
    link.symlink_to(target)
    content = target.read_bytes() if there else None
    with pytest.raises(ForeignStoreError, match="link is not the checkpoint"):
        KSil(6, random_state=0, checkpoint=link).fit(X)
    assert link.is_symlink()
    assert target.exists() == there
    assert content is None or target.read_bytes() == content


def test_no_folder_to_keep_it_in(tmp_path):
    with pytest.raises(InputError, match="there is no folder .*none.* to make fit in"):
        KSil(6, checkpoint=tmp_path / "none" / "fit").fit(X)
    assert os.listdir(tmp_path) == []
