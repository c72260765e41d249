"""Points, matrices and labels on an S3 server of this machine, read by two libraries."""

from __future__ import annotations

import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
import scipy.spatial.distance as ssd
import zarr
from s3_server import BUCKET, SECRET, Server, address, through_obstore
from typer.testing import CliRunner

import silchunk
from silchunk import (
    DamagedStoreError,
    InputError,
    InputNotFoundError,
    OutputExistsError,
    silhouette_upper_bound,
)
from silchunk.cli.base import app
from silchunk.points import as_rows

X = np.random.default_rng(0).standard_normal((300, 5))
LABELS = np.arange(300) % 3
BOUND = silhouette_upper_bound(X)
BOUND32 = silhouette_upper_bound(X, dtype="float32")


@pytest.fixture(scope="module")
def environment():
    """A server on loopback, and where programs find it."""
    reason = "needs an S3 server and clients: pip install moto flask flask-cors s3fs obstore"
    for package in ("flask_cors", "s3fs", "obstore"):
        pytest.importorskip(package, reason=reason)
    moto = pytest.importorskip("moto.server", reason=reason)
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_):
            pass

    application = Server(moto.DomainDispatcherApplication(moto.create_backend_app))
    made = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield (
        application,
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{made.port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_MAX_ATTEMPTS": "2",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        },
    )
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def server(environment, monkeypatch):
    """The server, with an empty bucket, found by this process."""
    import botocore.session

    application, variables = environment
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    application.fails = lambda path: False
    application.failed.clear()
    client = botocore.session.get_session().create_client("s3")
    client.create_bucket(Bucket="my-bucket", ACL="public-read")
    yield application
    for found in client.list_objects_v2(Bucket="my-bucket").get("Contents", []):
        client.delete_object(Bucket="my-bucket", Key=found["Key"])
    client.delete_bucket(Bucket="my-bucket")
    client.close()


READERS = {
    "address": address,
    "fsspec": lambda name: zarr.open_array(address(name), mode="r"),
    "obstore": through_obstore,
}
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


@pytest.mark.s3
@each_reader
@pytest.mark.parametrize("memory", ["4GiB", "238MiB"])
def test_points_and_labels_of_a_bucket_are_those_of_a_file(server, reader, memory):
    address("x.zarr", X, chunks=(70, 2))
    address("labels.zarr", LABELS, chunks=(100,))
    assert silhouette_upper_bound(reader("x.zarr"), memory=memory) == BOUND
    found = silchunk.silhouette_score(reader("x.zarr"), reader("labels.zarr"), memory=memory)
    assert found == silchunk.silhouette_score(X, LABELS)


@pytest.mark.s3
@each_reader
def test_a_matrix_of_a_bucket_is_that_of_a_file(server, reader):
    matrix = ssd.squareform(ssd.pdist(X))
    address("d.zarr", matrix, chunks=(64, 300))
    found = silhouette_upper_bound(reader("d.zarr"), metric="precomputed")
    assert found == silhouette_upper_bound(matrix, metric="precomputed")


@pytest.mark.s3
def test_commands_take_addresses(server):
    address("x.zarr", X, chunks=(70, 5))
    done = CliRunner().invoke(app, ["bound", address("x.zarr"), "--json"])
    assert done.exit_code == 0, done.output
    assert f"{BOUND}" in done.output
    done = CliRunner().invoke(app, ["bound", address("nothing.zarr")])
    assert (done.exit_code, "there is no Zarr array at s3://my-bucket/nothing" in done.output) == (
        65,
        True,
    )


@pytest.mark.s3
@pytest.mark.cluster
@each_reader
def test_workers_open_the_store_themselves(server, environment, client, reader, caplog):
    client.run(lambda variables: os.environ.update(variables), environment[1])
    given = reader(address("x.zarr", X, chunks=(70, 5)).removeprefix(f"{BUCKET}/"))
    task = pickle.dumps(as_rows(given))
    assert len(task) < 4096
    assert SECRET.encode() not in task
    with caplog.at_level(logging.DEBUG, "silchunk"):
        assert silhouette_upper_bound(given, scheduler=client) == BOUND
    assert SECRET not in caplog.text


@pytest.mark.cluster
def test_what_lies_in_this_process_is_copied_for_others(client):
    zarr.create_array("memory://points.zarr", data=X, chunks=(70, 5))
    assert as_rows("memory://points.zarr").resident_bytes == X.nbytes
    assert silhouette_upper_bound("memory://points.zarr", scheduler=client) == BOUND


@pytest.mark.s3
@each_reader
def test_reads_that_fail_now_and_then_are_tried_again(server, reader):
    given = reader(address("x.zarr", X, chunks=(70, 5)).removeprefix(f"{BUCKET}/"))
    server.fails = lambda path: "/c/" in path and path not in server.failed
    assert silhouette_upper_bound(given) == BOUND
    assert len(set(server.failed)) == 5


@pytest.mark.s3
def test_reads_that_always_fail_say_where(server):
    address("x.zarr", X, chunks=(70, 5))
    once = {"max_retries": 1, "retry_timeout": timedelta(seconds=5)}
    given = through_obstore("x.zarr", retry_config=once)
    server.fails = lambda path: path.endswith("/c/3/0")
    with pytest.raises(OSError, match=r"rows 0 to 300 of .*x.zarr cannot be read.*SlowDown") as got:
        silhouette_upper_bound(given)
    assert SECRET not in str(got.value)
    assert len(server.failed) == 2


@pytest.mark.s3
@each_reader
def test_an_absent_object_is_told(server, reader):
    given = reader(address("x.zarr", X, chunks=(70, 5)).removeprefix(f"{BUCKET}/"))
    assert silhouette_upper_bound(given) == BOUND
    rows = as_rows(given)
    fsspec.filesystem("s3").rm(f"{BUCKET}/x.zarr/c/2/0")
    with pytest.warns(silchunk.SilchunkWarning, match=r"1 of 5 chunks .* c/2/0 the|x.zarr/c/2/0 t"):
        silhouette_upper_bound(given)
    with pytest.raises(OSError, match="c/2/0 was there and is gone"):
        rows.rows(0, 300)


@pytest.mark.s3
def test_a_web_server_that_lists_nothing_is_asked_for_each_chunk(server, environment):
    files = fsspec.filesystem("s3")
    address("x.zarr", X, chunks=(70, 5))
    for object_ in files.find(f"{BUCKET}/x.zarr"):
        files.chmod(object_, acl="public-read")
    web = f"{environment[1]['AWS_ENDPOINT_URL']}/my-bucket/x.zarr"
    assert silhouette_upper_bound(web) == BOUND
    files.rm(f"{BUCKET}/x.zarr/c/2/0")
    with pytest.warns(silchunk.SilchunkWarning, match="1 of 5 chunks of http://.* c/2/0 the first"):
        silhouette_upper_bound(web)


@pytest.mark.parametrize(
    "given",
    [
        f"s3://somebody:{SECRET}@bucket/x.zarr",
        f"https://somebody:{SECRET}@host:8080/x.zarr",
        f"https://{SECRET}@host/x.zarr",
        f"az://container/x.zarr?sig={SECRET}",
        f"simplecache::s3://somebody:{SECRET}/{SECRET}@bucket/x.zarr",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(given, tmp_path):
    D = silchunk.build_distances(X, tmp_path / "d.zarr")
    for use in (silhouette_upper_bound, lambda to: silchunk.export_distances(D, to)):
        with pytest.raises(InputError, match="must hold no user, password") as got:
            use(given)
        assert SECRET not in str(got.value)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(InputError, match="gs:// addresses need the package gcsfs.*pip install gcs"):
        silhouette_upper_bound("gs://bucket/x.zarr")
    D = silchunk.build_distances(X, tmp_path / "d.zarr")
    with pytest.raises(InputError, match="the target: gs:// addresses need the package gcsfs"):
        silchunk.export_distances(D, "gs://bucket/d.zarr")
    with pytest.raises(InputError, match="Protocol not known: nowhere"):
        silhouette_upper_bound("nowhere://bucket/x.zarr")
    with pytest.raises(InputNotFoundError, match="An address is given as text, not as a Path"):
        silhouette_upper_bound(Path("s3://bucket/x.zarr"))


@pytest.mark.s3
def test_an_export_is_whole_or_not_at_all_and_never_writes_over_anything(server, tmp_path):
    D = silchunk.build_distances(X, tmp_path / "d.zarr")
    files = fsspec.filesystem("s3")
    silchunk.export_distances(D, f"{BUCKET}/d.zarr")
    assert np.array_equal(zarr.open_array(address("d.zarr"), mode="r")[:], D.rows(0, 300))
    assert silhouette_upper_bound(address("d.zarr"), metric="precomputed") == BOUND32
    files.rm(f"{BUCKET}/d.zarr/zarr.json")  # as an export leaves it that was killed
    with pytest.raises(OutputExistsError, match="holds objects already and is left as it is"):
        silchunk.export_distances(D, f"{BUCKET}/d.zarr")
    files.rm(f"{BUCKET}/d.zarr", recursive=True)
    shard = tmp_path / "d.zarr/c/1/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DamagedStoreError, match="panel 1 is torn"):
        silchunk.export_distances(D, f"{BUCKET}/d.zarr")
    files.invalidate_cache()
    assert files.find(f"{BUCKET}/d.zarr") == []


@pytest.mark.cluster
@pytest.mark.s3
def test_workers_write_to_the_bucket(server, environment, client, tmp_path):
    D = silchunk.build_distances(X, tmp_path / "d.zarr")
    client.run(lambda variables: os.environ.update(variables), environment[1])
    silchunk.export_distances(D, f"{BUCKET}/d.zarr", scheduler=client)
    assert np.array_equal(zarr.open_array(address("d.zarr"), mode="r")[:], D.rows(0, 300))


@pytest.mark.s3
def test_the_page_prints_what_it_says(server, tmp_path):
    page = (Path(__file__).parents[1] / "docs/object-stores.md").read_text()
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    code = "".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    done = run([sys.executable, "-c", code])
    said = [line.split("  # ")[1] for line in code.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == said, done.stderr
    assert SECRET not in done.stdout + done.stderr
    commands = re.findall(r"^\$ silchunk (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        done = run([sys.executable, "-m", "silchunk", *command.split()])
        assert done.returncode == 0, done.stderr
        assert "Unclosed" not in done.stderr
