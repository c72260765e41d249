"""Damage of every kind is reported, and only what is damaged is made again."""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest
from store_inputs import X, content, flip, shards, swap

from silchunk import (
    DamagedStoreError,
    OverBudgetError,
    StaleStoreError,
    StoreError,
    UnsealedStoreError,
    build_distances,
    import_distances,
    metric_kinds,
    open_distances,
    silhouette_upper_bound,
    verify_distances,
)


def swap_tiles_within(file):
    """Exchange the two halves of a shard's tiles, checksums of the tiles and all."""
    data = bytearray(file.read_bytes())
    half = len(data) // 3
    data[:half], data[half : 2 * half] = data[half : 2 * half], data[:half]
    file.write_bytes(data)


DAMAGE = {
    "truncated": lambda p: os.truncate(shards(p)[1], 1000),
    "emptied": lambda p: os.truncate(shards(p)[1], 0),
    "bit flipped at the start": lambda p: flip(shards(p)[1], 0),
    "bit flipped in the middle": lambda p: flip(shards(p)[1]),
    "bit flipped in the index": lambda p: flip(shards(p)[1], -10),
    "zeroed": lambda p: shards(p)[1].write_bytes(bytes(shards(p)[1].stat().st_size)),
    "appended to": lambda p: shards(p)[1].write_bytes(shards(p)[1].read_bytes() + b"x"),
    "deleted": lambda p: shards(p)[1].unlink(),
    "folder deleted": lambda p: shutil.rmtree(shards(p)[1].parent),
    "swapped": lambda p: swap(shards(p)[1], shards(p)[3]),
    "tiles swapped": lambda p: swap_tiles_within(shards(p)[1]),
    "copied from another": lambda p: shutil.copy(shards(p)[2], shards(p)[1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_panels_are_reported_and_only_they_are_rebuilt(path, damage, tmp_path):
    D = build_distances(X, path)
    whole = content(path)
    DAMAGE[damage](path)
    damaged = {1, 3} if damage == "swapped" else {1}
    for read in (lambda: D.rows(64, 65), lambda: silhouette_upper_bound(path)):
        with pytest.raises(DamagedStoreError, match="panel [13] is .*verify --repair"):
            read()
    assert np.isfinite(D.rows(128, 192)).all(), "the other panels are readable"
    found = D.verify()
    assert not found.ok
    assert set(found.damaged) == damaged
    assert "Nothing was changed" in str(found)
    untouched = {p: p.stat().st_mtime_ns for i, p in enumerate(shards(path)) if i not in damaged}
    mended = verify_distances(path, repair=True)
    assert mended.ok
    assert set(mended.damaged) == damaged
    assert content(path) == whole
    for file, time_of_writing in untouched.items():
        if int(file.parent.name) not in damaged:
            assert file.stat().st_mtime_ns == time_of_writing
    assert verify_distances(path).faults == ()
    assert silhouette_upper_bound(path) == silhouette_upper_bound(D)


def edit_attribute(path):
    text = (path / "zarr.json").read_text()
    assert '"euclidean"' in text
    (path / "zarr.json").write_text(text.replace('"euclidean"', '"manhattan"'))


def edit_journal_length(path):
    journal = path / "silchunk-journal.jsonl"
    journal.write_text(re.sub(r'"crc32c": (\d)', r'"crc32c": 1\1', journal.read_text(), count=1))


def swap_journal_lines(path):
    journal = path / "silchunk-journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]
    journal.write_text("".join(lines))


def append_to_journal(path):
    with (path / "silchunk-journal.jsonl").open("a") as stream:
        stream.write('{"panel": 0, "crc32c": 1, "bytes": 1} 00000000\n')


METADATA_DAMAGE = {
    "attribute edited": edit_attribute,
    "zarr.json flipped": lambda p: flip(p / "zarr.json"),
    "zarr.json deleted": lambda p: (p / "zarr.json").unlink(),
    "zarr.json emptied": lambda p: (p / "zarr.json").write_text(""),
    "journal record edited": edit_journal_length,
    "journal header flipped": lambda p: flip(p / "silchunk-journal.jsonl", 20),
    "journal seal flipped": lambda p: flip(p / "silchunk-journal.jsonl", -30),
    "journal lines swapped": swap_journal_lines,
    "journal appended to": append_to_journal,
    "journal deleted": lambda p: (p / "silchunk-journal.jsonl").unlink(),
    "points flipped": lambda p: flip(p / "points.npy"),
    "points deleted": lambda p: (p / "points.npy").unlink(),
}


@pytest.mark.parametrize("damage", METADATA_DAMAGE)
def test_damaged_metadata_is_reported_and_mended(path, damage, tmp_path):
    np.save(tmp_path / "x.npy", X)
    expected = build_distances(tmp_path / "x.npy", path).rows(0, 300)
    whole = content(path)
    METADATA_DAMAGE[damage](path)
    if "points" not in damage:
        with pytest.raises(StoreError, match="silchunk verify --repair"):
            open_distances(path)
    found = verify_distances(path)
    assert found.faults
    assert verify_distances(path, repair=True).ok
    assert verify_distances(path).faults == ()
    assert content(path) == whole
    assert np.array_equal(open_distances(path).rows(0, 300), expected)
    assert build_distances(X, path).metric == "euclidean"


def test_a_cut_journal_is_an_unsealed_store(path):
    build_distances(X, path)
    whole = content(path)
    journal = path / "silchunk-journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    for kept, torn in ((len(lines) - 1, ""), (3, '{"panel": 2, "cr'), (1, "")):
        journal.write_text("".join(lines[:kept]) + torn)
        with pytest.raises(UnsealedStoreError, match=f"{kept - 1} of 5 panels"):
            open_distances(path)
        assert build_distances(X, path).verify().ok
        assert content(path) == whole


def test_both_metadata_gone(path):
    build_distances(X, path)
    flip(path / "zarr.json", 0)
    flip(path / "silchunk-journal.jsonl", 0)
    with pytest.raises(DamagedStoreError, match="both damaged"):
        open_distances(path)
    with pytest.raises(DamagedStoreError, match="both damaged"):
        build_distances(X, path)


def test_a_resumed_build_redoes_what_was_damaged_meanwhile(path):
    def stop(done, total):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_distances(X, path, progress=stop, scheduler="sync")
    flip(shards(path)[1])
    shards(path)[2].unlink()
    steps = []
    D = build_distances(X, path, progress=lambda done, total: steps.append(total))
    assert steps == [4, 4, 4, 4, 3, 3, 3], "four are verified, three are built"
    assert D.verify().ok


def test_repair_says_what_it_cannot_do(path, tmp_path, monkeypatch):
    D = import_distances(np.abs(X[:, :1] - X[:, 0]), path)
    flip(shards(path)[0])
    with pytest.raises(StaleStoreError, match="is not to be found; pass it as X"):
        D.verify(repair=True)
    with pytest.raises(StaleStoreError, match="X is not the input"):
        D.verify(repair=True, X=np.zeros((300, 300)))
    assert D.verify(repair=True, X=np.abs(X[:, :1] - X[:, 0])).ok
    np.save(tmp_path / "given.npy", np.abs(X[:, :1] - X[:, 0]))
    D = import_distances(tmp_path / "given.npy", tmp_path / "e.zarr")
    flip(shards(tmp_path / "e.zarr")[2])
    assert D.verify(repair=True).ok


def manhattan(x, y):
    return float(np.abs(x - y).sum())


def test_one_panel_of_a_slow_metric_is_repaired_alone(path, monkeypatch):
    D = build_distances(X, path, metric="canberra", dtype="float64")
    whole = content(path)
    flip(shards(path)[2])
    measured = []
    fill = metric_kinds.PairwiseMetric.fill

    def counted(self, rows, columns, scratch, panel, first):
        measured.append(len(rows.source) * len(columns.source))
        fill(self, rows, columns, scratch, panel, first)

    monkeypatch.setattr(metric_kinds.PairwiseMetric, "fill", counted)
    assert D.verify(repair=True).damaged == (2,)
    assert content(path) == whole
    assert sum(measured) <= 64 * 300 + 64 * 64


def test_a_repair_that_was_cut_off_can_be_run_again(path):
    D = build_distances(X, path)
    whole = content(path)
    for i in (1, 2, 4):
        flip(shards(path)[i])

    def stop(done, total):
        if total == 3 and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        D.verify(repair=True, progress=stop, scheduler="sync")
    with pytest.raises(OverBudgetError):
        D.verify(repair=True, memory="1MiB")
    assert D.rows(0, 64).shape == (64, 300), "what is whole can still be read"
    assert set(D.verify().damaged) <= {1, 2, 4}
    assert D.verify(repair=True).ok
    assert content(path) == whole


@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_a_callable_cannot_be_kept(path):
    D = build_distances(X[:70], path, metric=manhattan)
    flip(shards(path)[0])
    with pytest.raises(StaleStoreError, match="callable 'manhattan', which it cannot keep"):
        D.verify(repair=True)


@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_a_slow_metric_goes_on_where_it_was(path):
    def stop(at):
        def progress(done, total):
            if done == at:
                raise KeyboardInterrupt

        return progress

    expected = build_distances(X[:200], path.with_name("e"), metric=manhattan).rows(0, 200)
    for at in (2, 1, 3):  # two halves, the third and fourth; then panels
        with pytest.raises(KeyboardInterrupt):
            build_distances(X[:200], path, metric=manhattan, progress=stop(at), scheduler="sync")
    flip(next((path / "halves").glob("0.npy")))
    D = build_distances(X[:200], path, metric=manhattan)
    assert np.array_equal(D.rows(0, 200), expected)
    assert not (path / "halves").exists()
