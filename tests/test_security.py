"""Who can reach what silchunk starts, who can read what it writes, and what it does not read."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import stat
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from tls_here import make_certificates, ran

import silchunk
from silchunk import (
    InputError,
    KMeans,
    build_distances,
    compare_labels,
    import_distances,
    journal,
    silhouette_score,
    silhouette_upper_bound,
    verify_distances,
)

SILCHUNK = (sys.executable, "-m", "silchunk")
X = np.random.default_rng(0).standard_normal((300, 4))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", np.arange(300) % 3)
    return tmp_path


# What listens.

LISTENING = """
import json, socket, urllib.error, urllib.request
import psutil
from distributed import Client
from silchunk.engine.connecting import connected

if __name__ == "__main__":  # worker processes import this file again
    with connected(workers=2, threads=1):
        client = Client.current()
        own = psutil.Process()
        family = {one.pid: one for one in [own, *own.children(recursive=True)]}
        open_ones = [
            (one.pid, one.laddr.ip)
            for one in psutil.net_connections("inet")
            if one.pid in family
            and (one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM)
        ]
        port = client.scheduler_info()["services"]["dashboard"]
        try:
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60).status
        except urllib.error.HTTPError as error:
            page = error.code
        print(json.dumps({
            "address": client.scheduler.address,
            "open": open_ones,
            "workers": list(client.run(lambda: __import__("os").getpid()).values()),
            "lines": [one.cmdline() for one in family.values()],
            "dashboard": page,
        }))
"""


def listening(tmp_path, folder=None):
    (tmp_path / "listening.py").write_text(LISTENING)
    done = ran([sys.executable, "listening.py"], cwd=tmp_path, folder=folder)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_started_here_listen_on_loopback_alone(tmp_path):
    found = listening(tmp_path)
    assert found["address"].startswith("tcp://127.0.0.1:")
    assert {ip for _, ip in found["open"]} == {"127.0.0.1"}
    assert len(found["workers"]) == 2
    assert set(found["workers"]) < {pid for pid, _ in found["open"]}, "all of them were looked at"
    assert found["dashboard"] == 404


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.tls
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the keys")
def test_processes_started_here_take_certificates(tmp_path):
    make_certificates(tmp_path / "mine")
    found = listening(tmp_path, tmp_path / "mine")
    assert found["address"].startswith("tls://127.0.0.1:")
    assert {ip for _, ip in found["open"]} == {"127.0.0.1"}
    assert not any(".pem" in part for line in found["lines"] for part in line)


# What is written.

# Every process that Python starts notes what it makes as soon as it does anything else, so that
# what lasts a moment is seen as well.
NOTES = """
import atexit, json, os, stat, sys

log = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
top = os.environ["NOTES_BELOW"] + os.sep
made = []

def note():
    for path in list(made):
        try:
            found = os.lstat(path).st_mode
        except OSError:  # not there yet, where another thread is about to make it
            continue
        try:
            made.remove(path)
        except ValueError:
            continue
        line = json.dumps([path[len(top):], stat.S_IMODE(found), stat.S_ISDIR(found)])
        os.write(log, f"{line}\\n".encode())

def watch(event, arguments):
    note()
    if event in ("os.mkdir", "os.chmod") or event == "open" and arguments[2] & os.O_CREAT:
        if isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path.startswith(top):
                made.append(path)

sys.addaudithook(watch)
atexit.register(note)
"""
COMMANDS = (
    "distances x.npy d.zarr --metric canberra",
    "distances x.npy e.zarr --workers 1",
    "bound x.npy --checkpoint job --curve curve.csv --samples samples.npy",
    "cluster x.npy -k 3 -o found.npy --checkpoint fit --centers centers.npy --history steps.csv",
    "score x.npy labels.npy --table table.zarr",
    "export d.zarr plain.npy",
    "export d.zarr plain.zarr",
)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_files_are_made_as_the_umask_asks(folder, umask, tmp_path_factory):
    notes = tmp_path_factory.mktemp("notes")
    (notes / "sitecustomize.py").write_text(NOTES)
    given = {path.name for path in folder.iterdir()}
    (folder / "scratch").mkdir(0o700)
    for command in COMMANDS:
        ran(
            [*SILCHUNK, *command.split()],
            cwd=folder,
            umask=umask,
            PYTHONPATH=str(notes),
            NOTES=str(notes / "log"),
            NOTES_BELOW=str(folder),
            TMPDIR=str(folder / "scratch"),
        )
    noted = [json.loads(line) for line in (notes / "log").read_text().splitlines()]
    for path in folder.rglob("*"):
        if path.name not in given and path.name != "scratch":
            where = str(path.relative_to(folder))
            noted.append([where, stat.S_IMODE(path.lstat().st_mode), path.is_dir()])
    names = {Path(where).name for where, _, _ in noted}
    assert {"zarr.json", "panel-0000000.npz", "plain.npy", "table.zarr", "points.npy"} <= names
    assert {"curve.csv", "samples.npy", "found.npy", "fit", "centers.npy", "steps.csv"} <= names
    assert {"fit.part", "halves", "dask-scratch-space"} <= names, "what lasts a moment"
    for where, mode, is_folder in noted:
        if not where.startswith("scratch/"):
            assert mode == (0o777 if is_folder else 0o666) & ~umask, where
        elif Path(where).name.startswith("silchunk-"):
            assert mode == 0o700, where
        assert not mode & umask, where
    assert any(where.startswith("scratch/silchunk-") for where, _, _ in noted)


# What is not read.


class Trap:
    """Whoever unpickles it makes a file."""

    def __init__(self, folder):
        self.file = folder / "sprung"

    def __reduce__(self):
        return Path.touch, (self.file,)


def traps(folder, *shape):
    return np.full(shape, Trap(folder), object)


def test_the_trap_works(folder):
    np.save("traps.npy", traps(folder, 2))
    np.load("traps.npy", allow_pickle=True)
    assert (folder / "sprung").exists()


READERS = {
    "points": (lambda path: silhouette_upper_bound(path), (300, 4)),
    "points to cluster": (lambda path: KMeans(2).fit(path), (300, 4)),
    "points to store": (lambda path: build_distances(path, "d.zarr"), (300, 4)),
    "a matrix": (lambda path: silhouette_upper_bound(path, metric="precomputed"), (9, 9)),
    "a condensed one": (lambda path: silhouette_upper_bound(path, metric="precomputed"), (36,)),
    "a matrix to store": (lambda path: import_distances(path, "d.zarr"), (9, 9)),
    "a condensed one to store": (lambda path: import_distances(path, "d.zarr"), (36,)),
    "labels": (lambda path: silhouette_score("x.npy", path), (300,)),
    "labels to compare": (lambda path: compare_labels("labels.npy", path), (300,)),
}


@pytest.mark.parametrize("reader", READERS)
def test_pickles_are_not_read(folder, reader):
    read, shape = READERS[reader]
    np.save("traps.npy", traps(folder, *shape))
    before = sorted(os.listdir())
    with pytest.raises(ValueError, match="Python objects"):
        read("traps.npy")
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_pickles_in_zarr_are_not_read(folder, place):
    """The second version of the format can ask for them, in labels that are strings."""
    metadata = {
        "zarr_format": 2,
        "shape": [300],
        "chunks": [300],
        "dtype": "|O",
        "fill_value": "",
        "order": "C",
        "filters": [{"id": "vlen-utf8"}],
        "compressor": None,
    }
    pickled = {"id": "pickle", "protocol": 4}
    if place == "filters":
        metadata["filters"].append(pickled)
    else:
        metadata["compressor"] = pickled
    (folder / "labels.zarr").mkdir()
    (folder / "labels.zarr" / ".zarray").write_text(json.dumps(metadata))
    (folder / "labels.zarr" / "0").write_bytes(pickle.dumps(Trap(folder)))
    with pytest.raises(InputError, match="holds pickled Python objects"):
        silhouette_score("x.npy", "labels.zarr")
    assert not (folder / "sprung").exists()


def test_pickles_in_a_checkpoint_are_not_read(folder):
    silhouette_upper_bound(X, checkpoint="job")
    np.savez("job/panel-0000000.npz", part=traps(folder, 300))
    # Recorded as if silchunk had written it: who may write the folder can do that.
    lines = (folder / "job" / "silchunk-checkpoint.jsonl").read_bytes().splitlines()
    store = json.loads(lines[0][:-9])["store"]
    content = (folder / "job" / "panel-0000000.npz").read_bytes()
    crc = journal.checksum(store, "panel", 0, content)
    line = json.dumps({"bytes": len(content), "crc32c": crc, "panel": 0})
    check = google_crc32c.value(store.encode() + line.encode())
    with open("job/silchunk-checkpoint.jsonl", "ab") as stream:
        stream.write(f"{line} {check:08x}\n".encode())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        silhouette_upper_bound(X, checkpoint="job")
    assert not (folder / "sprung").exists()


def test_pickles_in_a_store_are_not_read(folder):
    build_distances(X, "d.zarr")
    np.save("d.zarr/points.npy", traps(folder, 300, 4))
    assert not verify_distances("d.zarr").ok
    assert not (folder / "sprung").exists()


def test_no_module_allows_pickles():
    given = {
        ast.unparse(node.value)
        for path in Path(silchunk.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
    }
    assert given == {"False"}
