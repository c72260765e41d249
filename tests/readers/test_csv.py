"""CSV and TSV files: read as they come, refused where they are not what they seem."""

from __future__ import annotations

import gzip
import sys

import dask
import numpy as np
import pandas as pd
import pytest

from silchunk import (
    InputError,
    InputNotFoundError,
    SilchunkWarning,
    read_points,
    silhouette_score,
    silhouette_upper_bound,
)
from silchunk.labels import read_labels
from silchunk.readers import delimited, tables

X = np.random.default_rng(0).standard_normal((300, 3))
KINDS = np.array(["a", "b", "c"])[np.arange(300) % 3]
FRAME = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2]})


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(path, **options):
    rows = read_points(path, **options)
    return rows.rows(0, rows.shape[0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", {}),
        ("t.csv.gz", {}),
        ("T.CSV", {"lineterminator": "\r\n"}),
        ("bom.csv", {"encoding": "utf-8-sig"}),
        ("quoted.csv", {"quoting": 1}),
        ("t.tsv", {"sep": "\t"}),
        ("t.tsv.gz", {"sep": "\t"}),
        ("semicolons.csv", {"sep": ";"}),
        ("commas.tsv", {}),
    ],
)
def test_tables_of_all_dialects_give_the_same_bound(name, options, tmp_path):
    FRAME.to_csv(tmp_path / name, index=False, **options)
    assert silhouette_upper_bound(tmp_path / name) == silhouette_upper_bound(X)


def test_text_is_left_out_with_a_warning_unless_columns_are_named(tmp_path):
    FRAME.assign(kind=KINDS).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(SilchunkWarning, match=r"left out 'kind' \(text\)\. Name the columns"):
        found = values(tmp_path / "t.csv")
    assert np.array_equal(found, X)
    assert np.array_equal(values(tmp_path / "t.csv", columns=["z", "x"]), X[:, [2, 0]])
    assert np.array_equal(values(tmp_path / "t.csv", label_column="kind"), X)


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv")
    with pytest.warns(SilchunkWarning, match=r"left out '' \(numbers\)"):
        assert np.array_equal(values(tmp_path / "t.csv"), X)


def test_a_first_line_of_numbers_is_a_row(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False, header=False)
    with pytest.warns(SilchunkWarning, match="numbers in its first line"):
        assert np.array_equal(values(tmp_path / "t.csv"), X)
    pd.DataFrame(X).to_csv(tmp_path / "named.csv", index=False)  # its names are 0, 1, 2
    with pytest.warns(SilchunkWarning, match="its first line, 0 to 2, is taken for the columns' n"):
        assert np.array_equal(values(tmp_path / "named.csv"), X)


def test_labels_whose_first_is_zero_lose_none(tmp_path):
    np.savetxt(tmp_path / "labels.csv", [0, 1, 1, 0], fmt="%d")
    with pytest.warns(SilchunkWarning, match="numbers in its first line"):
        assert read_labels(tmp_path / "labels.csv", 4).codes.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("a,k\n1,u\n2,v\n", ["u", "v"]),
        ("a,k\n1,3\n2,-1\n", [-1, 3]),
        ("a,k\n1,0.5\n2,1\n", [0.5, 1.0]),
        ("a,k\n1,NA\n2,1\n", ["1", "NA"]),
        ("a,k\n1,1\n2,01\n", ["01", "1"]),
    ],
)
def test_labels_of_a_column_are_numbers_where_all_are(text, classes, tmp_path):
    path = written(tmp_path, text)
    assert read_labels(f"{path}:k", 2, noise="cluster").classes == classes


def test_a_file_of_labels_needs_no_name(tmp_path):
    pd.DataFrame({"kind": KINDS}).to_csv(tmp_path / "l.csv", index=False)
    assert silhouette_score(X, tmp_path / "l.csv") == silhouette_score(X, KINDS)
    FRAME.assign(kind=KINDS).to_csv(tmp_path / "t.csv", index=False)
    assert silhouette_score(X, f"{tmp_path}/t.csv:kind") == silhouette_score(X, KINDS)
    with pytest.raises(InputError, match=r"labels: .* has 4 columns; say which has the labels"):
        read_labels(tmp_path / "t.csv", 300)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is an empty file"),
        ("a,b", "has no lines after its first one"),
        ("a,b\n", r"has no column of numbers; it has 'a' \(nothing\), 'b' \(nothing\)"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 values where the first line has 2"),
        ("a,b\n1,2\n3\n", "line 3 has 1 values where the first line has 2"),
        ("a,b\n1,5,2,5\n", r"line 2 has 4 values.*Numbers with a decimal comma\?"),
        ("a;b\n1,5;2,5\n", r"'a' holds numbers with a decimal comma, such as '1,5'"),
        ("a,b\n1,2\n,4\n", r"has no number in row 1 \(counted from 0\), column 'a'"),
        ("a,b\n1,2\n3,nan\n", "has no number in row 1 .*column 'b'"),
        ("a,b\n1,2\n3,-inf\n", "has -inf in row 1 .*column 'b'"),
        ("a,b\nx,y\n", r"has no column of numbers; it has 'a' \(text\), 'b' \(text\)"),
        ("a,b,a\n1,2,3\n", "has 2 columns named 'a'"),
        (b"\xfc,b\n1,2\n", "is not UTF-8 text"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16 text"),
        (b"\x7fELF\0\0\0\n", "is not text"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out:silchunk.SilchunkWarning")
def test_what_is_wrong_is_told_with_its_place(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_points(written(tmp_path, text))


def test_text_far_down_in_a_column_of_numbers_is_told_with_its_line(tmp_path):
    lines = ["b,a"] + [f"{i},{i}" for i in range(400_000)] + ["1,oops"]  # beyond the first block
    path = written(tmp_path, "\n".join(lines))
    with pytest.raises(
        InputError, match="line 400002 has 'oops' in column 'a', which is not a num"
    ):
        read_points(path)
    with pytest.raises(InputError, match="'oops' in column 'a'"):
        read_points(path, columns=["a"])
    assert read_points(path, columns=["b"]).shape == (400_001, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["x", "speces"]}, "has no column 'speces'; did you mean 'species'"),
        ({"columns": ["qqq"]}, "has no column 'qqq'; it has 'x', 'y', 'z', 'species'"),
        ({"columns": ["species"]}, "column 'species' holds text, not numbers"),
        ({"columns": ["x", "x"]}, "columns has 'x' twice"),
        ({"columns": "x"}, "columns must be a list of names; got 'x'"),
        ({"columns": []}, "columns must be a list of names"),
        ({"label_column": "Species"}, "did you mean 'species'"),
        ({"array": "x"}, "is one column; points are read from"),
    ],
)
def test_choices_that_are_not_there(options, message, tmp_path):
    FRAME.assign(species=KINDS).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=message):
        read_points(tmp_path / "t.csv", **options)


def test_files_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(InputNotFoundError, match="no file or folder"):
        silhouette_upper_bound(tmp_path / "nowhere.csv")
    written(tmp_path, "a,b\n1,2\n", "plain.csv.gz")
    with pytest.raises(InputError, match="is not a readable gzip file"):
        read_points(tmp_path / "plain.csv.gz")
    whole = gzip.compress(FRAME.to_csv(index=False).encode())
    written(tmp_path, whole[: len(whole) // 2], "half.csv.gz")
    with pytest.raises(InputError, match="half.csv.gz"):
        read_points(tmp_path / "half.csv.gz")
    monkeypatch.setattr(delimited, "WIDEST", 2)
    monkeypatch.setattr(tables, "WIDEST", 2)
    FRAME.to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(InputError, match=r"has 3 columns, more than 2\. Is it transposed\?"):
        read_points(tmp_path / "wide.csv")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="columns are named in tables"):
        read_points(tmp_path / "x.npy", columns=["a"])


def test_lines_longer_than_a_block_are_read(tmp_path):
    long = FRAME.rename(columns=lambda one: one * (1 << 19))  # 1.5 MiB of names
    long.to_csv(tmp_path / "t.csv", index=False)
    assert np.array_equal(values(tmp_path / "t.csv"), X)


def test_missing_numbers_are_let_through_when_asked(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n,4\n5,6\n")
    rows = read_points(path, missing=True)
    with_nan = np.array([[1, 2], [np.nan, 4], [5, 6]])
    assert np.array_equal(rows.rows(0, 3), with_nan, equal_nan=True)
    expected = silhouette_upper_bound(with_nan, metric="nan_euclidean")
    assert silhouette_upper_bound(rows, metric="nan_euclidean") == expected
    with pytest.raises(InputError, match="has inf"):
        read_points(written(tmp_path, "a,b\n1,inf\n"), missing=True)


def test_the_scratch_file_goes_with_the_rows(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    written(tmp_path, "a,b\n1,2\n3,\n", "bad.csv")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with dask.config.set({"temporary-directory": str(scratch)}):
        rows = read_points(tmp_path / "t.csv")
        assert len(list(scratch.iterdir())) == 1
        del rows
        assert not list(scratch.iterdir())
        silhouette_upper_bound(tmp_path / "t.csv")
        with pytest.raises(InputError, match="no number"):
            read_points(tmp_path / "bad.csv")
        assert not list(scratch.iterdir())


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pyarrow, which is not installed.*silchunk\[table\]"):
        read_points(tmp_path / "t.csv")


# Numbers that say nothing, and numbers that are not there.


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("row", np.arange(len(X))),
        ("row", np.arange(len(X)) + 10_001),
        ("customer_id", np.random.default_rng(0).permutation(len(X))),
        ("ID", np.random.default_rng(0).permutation(len(X))),
        ("customerId", np.full(len(X), 7)),
    ],
)
def test_columns_that_number_the_points_are_told_of(name, numbers, tmp_path):
    FRAME.assign(**{name: numbers}).to_csv(tmp_path / "t.csv", index=False)
    told = rf"'{name}' seems to number the points, and yet counts as a feature"
    with pytest.warns(SilchunkWarning, match=told):
        found = values(tmp_path / "t.csv")
    assert np.array_equal(found, np.column_stack([X, numbers]))
    # Who names columns knows them.
    assert values(tmp_path / "t.csv", columns=["x", name]).shape == (len(X), 2)


@pytest.mark.parametrize("name", ["width", "valid", "grid", "liquid", "Humid"])
def test_other_columns_are_not(name, tmp_path):
    numbers = np.random.default_rng(0).permutation(len(X))
    FRAME.assign(**{name: numbers}).to_csv(tmp_path / "t.csv", index=False)
    assert values(tmp_path / "t.csv").shape == (len(X), 4)


def test_all_rows_with_missing_values_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "COPY_BYTES", 8 * 3 * 16)  # blocks of sixteen rows
    frame = FRAME.copy()
    frame.loc[[17, 40], "y"] = np.nan
    frame.loc[40, "x"] = np.inf
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = (
        rf"no number in row 17 \(counted from 0\), column 'y'; 2 of {len(X)} rows have such "
        r"values.*in pandas: frame.dropna\(\)"
    )
    with pytest.raises(InputError, match=expected):
        values(tmp_path / "t.csv")
