"""Labels of any kind against their definition: which points have equal ones."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from silchunk import labels as labels_module
from silchunk.errors import InputError, InputNotFoundError, InputTypeError
from silchunk.labels import StoredVector, read_labels


def check(found, listed, classes):
    """The labels of all points are as listed, and the classes in this order."""
    assert found.classes == classes
    assert [found.classes[code] for code in found.codes] == listed
    assert found.sizes.tolist() == [listed.count(label) for label in classes]
    assert found.n_clusters == len(classes)
    assert found.n_kept == len(listed)


# Kinds of labels.


@pytest.mark.parametrize(
    ("given_labels", "classes"),
    [
        ([2, 0, 2, 7], [0, 2, 7]),
        ([-5, 3, -2, 3], [-5, -2, 3]),
        (["b", "a", "", "b"], ["", "a", "b"]),
        ([2.5, -0.5, 2.5, 1.0], [-0.5, 1.0, 2.5]),
        ([True, False, True], [False, True]),
        ([(1, "x"), (0, "y"), (1, "x")], [(0, "y"), (1, "x")]),
        ([(0, 1), (0, 1), (1, 0)], [(0, 1), (1, 0)]),
        ([1, "1", 1, "1"], [1, "1"]),
        (["1", 1, 2, "1"], ["1", 1, 2]),
        ([1j, 2, 1j], [1j, 2]),
        ([b"b", b"a", b"b"], [b"a", b"b"]),
        ([1, 2.5, 1], [1, 2.5]),
        ([2**63, 2**63 + 1, -2, 2**63], [-2, 2**63, 2**63 + 1]),
        ([2**53, 2**53 + 1, 0.5], [0.5, 2**53, 2**53 + 1]),
        ([2**70, 1, 2**70], [1, 2**70]),
        (["a", "a\0", "a"], ["a", "a\0"]),
        ([5], [5]),
        ([], []),
    ],
)
def test_lists(given_labels, classes):
    n = len(given_labels)
    check(read_labels(given_labels, n), given_labels, classes)
    check(read_labels(tuple(given_labels), n), given_labels, classes)
    check(read_labels(iter(given_labels), n), given_labels, classes)
    check(read_labels(given_labels, None), given_labels, classes)


@pytest.mark.parametrize(
    "array",
    [
        np.array([3, 1, 1, 9], np.uint8),
        np.array([3, -7, -7, 2**62], np.int64),
        np.array([2**64 - 1, 0, 2**64 - 1], np.uint64),
        np.array([0.5, -0.0, 0.0], np.float32),
        np.array([True, False]),
        np.array(["b", "a", "bb"]),
        np.array([b"b", b"a"]),
        np.array(["b", "a", "b"], object),
        np.array(["b", "a", "b"], np.dtypes.StringDType()),
        np.arange(10)[::-3],
    ],
)
def test_arrays(array):
    before = array.copy()
    listed = array.tolist()
    check(read_labels(array, len(array)), listed, sorted(set(listed)))
    assert np.array_equal(array, before)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates(unit):
    dates = np.array(["2026-11-30", "2025-01-01", "2026-11-30"], f"datetime64[{unit}]")
    check(read_labels(dates, 3), list(dates), [dates[1], dates[0]])
    dates[1] = "NaT"
    with pytest.raises(InputError, match="labels have None or NaN"):
        read_labels(dates, 3)


def test_records_are_labels():
    records = np.array([(1, b"x"), (0, b"y"), (1, b"x")], "i4,S1")
    check(read_labels(records, 3), records.tolist(), [(0, b"y"), (1, b"x")])


class Indexed:
    """Like a pandas Series: slices go by its index, which need not count from 0."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __getitem__(self, key):
        raise AssertionError("slices were not to be taken")


def test_an_index_of_its_own_does_not_count():
    check(read_labels(Indexed(["b", "a", "b"]), 3), ["b", "a", "b"], ["a", "b"])


def test_pandas():
    pandas = pytest.importorskip("pandas")
    listed = ["b", "a", "b", "c"]
    series = pandas.Series(listed, index=[0.5, 3.0, -1.0, 2.0])
    for given_labels in (
        series,
        series.astype("string"),
        series.astype("category"),
        pandas.Categorical(listed, categories=["c", "d", "b", "a"]),
        pandas.Index(listed),
    ):
        check(read_labels(given_labels, 4), listed, ["a", "b", "c"])
    check(read_labels(pandas.Series([4, 2, 4], dtype="Int64"), 3), [4, 2, 4], [2, 4])
    for missing in (
        pandas.Series([4, pandas.NA, 4], dtype="Int64"),
        pandas.Series(["a", None, "b"]),
        pandas.Categorical(["a", None, "b"]),
        pandas.to_datetime(pandas.Series(["2026-11-30", None, "2026-11-30"])),
        [1, pandas.NA, 2],
        [1, pandas.NaT, 2],
    ):
        with pytest.raises(InputError, match="labels have None or NaN"):
            read_labels(missing, 3)
    with pytest.raises(InputError, match=r"their shape is \(4, 1\)"):
        read_labels(series.to_frame(), 4)


@given(st.lists(st.one_of(st.integers(-2, 3), st.sampled_from("ab1"), st.tuples(st.booleans()))))
def test_codes_are_equal_where_labels_are(listed):
    found = read_labels(listed, len(listed), noise="cluster")
    for one, first in zip(found.codes, listed, strict=True):
        for other, second in zip(found.codes, listed, strict=True):
            assert (one == other) == (first == second)
    assert sorted(set(found.codes.tolist())) == list(range(found.n_clusters))
    renamed = read_labels([("new", label) for label in listed], len(listed))
    assert sorted(renamed.sizes.tolist()) == sorted(found.sizes.tolist())


# Labels out of core.

LISTED = [3, -4, 3, 10, 3, 10, -4, 8, 8, 3, 3]


def sources(listed, folder):
    """The same labels wherever they can lie."""
    array = np.array(listed)
    np.save(folder / "labels.npy", array)
    yield folder / "labels.npy"
    yield str(folder / "labels.npy")
    yield f"file://{folder}/labels.npy"
    for name, chunks, shards in (("a", 4, None), ("b", 2, 6), ("c", 100, None)):
        path = folder / f"{name}.zarr"
        yield zarr.create_array(
            path, data=array, chunks=(chunks,), shards=None if shards is None else (shards,)
        )
        yield path
    for chunks in ((4, 4, 3), (1, 9, 1), (11,), (0, 11)):
        lazy = da.from_array(array, chunks=11).rechunk((chunks,))
        yield lazy
        yield lazy[lazy != np.array(99)]  # whose chunks have unknown sizes


@pytest.mark.parametrize("block", [1, 3, 5, 1 << 18])
def test_wherever_they_lie_and_however_they_are_read(tmp_path, monkeypatch, block):
    monkeypatch.setattr(labels_module, "BLOCK_LABELS", block)
    seen = 0
    for source in sources(LISTED, tmp_path):
        check(read_labels(source, len(LISTED)), LISTED, [-4, 3, 8, 10])
        seen += 1
    assert seen == 17


@pytest.mark.parametrize("block", [1, 4, 1 << 18])
def test_classes_of_many_blocks(monkeypatch, block):
    monkeypatch.setattr(labels_module, "BLOCK_LABELS", block)
    for listed, classes in (
        (["c", "a", "c", "b", "a"], ["a", "b", "c"]),
        (["c", 1, "c", 0, 1], ["c", 1, 0]),  # without an order: as they appear
        ([1.0, 0, 1, 0.0, 2], [0, 1, 2]),
    ):
        check(read_labels(listed, 5), listed, classes)


def test_blocks_are_whole_chunks(monkeypatch):
    monkeypatch.setattr(labels_module, "BLOCK_LABELS", 7)
    taken = []

    class Chunked:
        shape, chunks = (20,), (3,)

        def __getitem__(self, points):
            taken.append((points.start, points.stop))
            return np.arange(20)[points]

    assert read_labels(Chunked(), 20).n_clusters == 20
    assert taken == [(0, 6), (6, 12), (12, 18), (18, 24)]


def test_strings_in_zarr(tmp_path):
    listed = ["b", "a", "longer", "b"]
    for version, dtype in ((2, "U6"), (3, np.dtypes.StringDType())):
        array = np.array(listed, dtype)
        stored = zarr.create_array(
            tmp_path / f"v{version}", data=array, chunks=(2,), zarr_format=version
        )
        check(read_labels(stored, 4), listed, ["a", "b", "longer"])


def test_a_stored_vector_gives_ranges(tmp_path):
    np.save(tmp_path / "codes.npy", np.arange(9, dtype=np.int16))
    vector = StoredVector(str(tmp_path / "codes.npy"))
    assert vector[2:5].tolist() == [2, 3, 4]
    assert vector[2:5].dtype == np.int16


# Refusals.


@pytest.mark.parametrize(
    "missing",
    [
        [0, None, 1],
        ["a", None, "b"],
        ["a", float("nan"), "b"],
        [0.0, np.nan, 1.0],
        np.array([0.0, np.nan, 1.0]),
        np.array(["a", None, "b"], object),
        np.array([1, np.nan, 2], object),
        np.array([1j, complex(np.nan, 0), 2]),
        np.array(["2026-11-30", "NaT", "2026-11-30"], "datetime64[us]"),
        np.ma.masked_array([0, 1, 2], [False, True, False]),
        da.from_array(np.array([0.0, np.nan, 1.0]), chunks=2),
        da.ma.masked_equal(da.from_array(np.arange(3), chunks=2), 1),
    ],
)
def test_missing_labels_are_refused(missing):
    with pytest.raises(InputError, match="clusters have None or NaN, .* give it a label"):
        read_labels(missing, 3, name="clusters")


def test_a_masked_array_without_masked_entries_is_an_array():
    check(read_labels(np.ma.masked_array([1, 0, 1]), 3), [1, 0, 1], [0, 1])


@pytest.mark.parametrize(
    "unhashable", [[[0], [0], [1]], [{}, {}, {}], np.array([{}, [], 1], object), [1, set(), "a"]]
)
def test_labels_have_to_be_hashable(unhashable):
    with pytest.raises(InputError, match="labels must be hashable: unhashable type"):
        read_labels(unhashable, 3)


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        ([0, 1], r"\(2,\)"),
        ([], r"\(0,\)"),
        (np.zeros((3, 1)), r"\(3, 1\)"),
        (np.zeros((1, 3)), r"\(1, 3\)"),
        (np.array(3), r"\(\)"),
        (da.zeros(4, chunks=2), r"\(4,\)"),
        (da.zeros((3, 1)), r"\(3, 1\)"),
        (zarr.array(np.zeros((3, 3))), r"\(3, 3\)"),
        (zarr.array(np.array(3)), r"\(\)"),
    ],
)
def test_there_is_one_label_for_each_point(wrong, shape):
    with pytest.raises(InputError, match=f"one entry for each of the 3 points; .* is {shape}"):
        read_labels(wrong, 3)


def test_labels_that_are_read_already():
    found = read_labels(["a", -1, "b"], 3, noise="drop")
    assert read_labels(found, 3) is found
    assert read_labels(found, None) is found
    with pytest.raises(InputError, match="clusters are of 3 points; there are 4"):
        read_labels(found, 4, name="clusters")


def test_any_number_of_labels():
    assert len(read_labels(range(1200), None).codes) == 1200
    with pytest.raises(InputError, match=r"one entry for each point; their shape is \(2, 2\)"):
        read_labels(np.zeros((2, 2)), None)


@pytest.mark.parametrize("wrong", [{0: "a", 1: "b"}, {"a", "b"}, frozenset("ab"), 2, None])
def test_what_is_no_sequence(wrong):
    with pytest.raises(InputTypeError, match="clusters must be a sequence.*got"):
        read_labels(wrong, 2, name="clusters")


def test_paths_that_hold_no_labels(tmp_path):
    with pytest.raises(InputNotFoundError, match="clusters: there is no file or folder 'abc'"):
        read_labels("abc", 3, name="clusters")
    (tmp_path / "labels.xlsx").write_text("a,b,c")
    with pytest.raises(InputTypeError, match=r"labels: .*reads \.npy files, Zarr arrays"):
        read_labels(tmp_path / "labels.xlsx", 3)
    np.save(tmp_path / "objects.npy", np.array([1, "a"], object))
    with pytest.raises(InputError, match=r"labels: .* is not a readable \.npy file: .*Python obj"):
        read_labels(tmp_path / "objects.npy", 2)
