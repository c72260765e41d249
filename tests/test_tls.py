"""Certificates, and who may join a cluster that asks for them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys

import numpy as np
import pytest
import yaml
from distributed import Client
from distributed.security import Security
from tls_here import (
    BY_SETTINGS,
    CONFIGS,
    PAGE,
    PATIENCE,
    ROOT,
    blocks,
    cluster,
    make_certificates,
    ran,
    started,
)

from silchunk import silhouette_upper_bound

SILCHUNK = (sys.executable, "-m", "silchunk")
FAILED = 70  # as sysexits.h has it
DAY = 24 * 3600
X = np.random.default_rng(0).standard_normal((300, 4))
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the keys")


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


# Certificates.


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "a job's & #1"
    make_certificates(folder, "3")
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "others"
    make_certificates(folder)
    return folder


@pytest.mark.tls
@needs_openssl
def test_certificates_are_for_one_job_and_its_owner(mine):
    names = ["ca.pem", "certificate.pem", "dask.yaml", "key.pem"]
    # The authority's key is gone: nothing else can be signed with it.
    assert sorted(os.listdir(mine)) == names
    assert {mode(mine / name) for name in names} == {0o600}
    assert mode(mine) == 0o700
    for purpose in ("sslserver", "sslclient"):
        strict = ("openssl", "verify", "-x509_strict", "-purpose", purpose)
        ran([*strict, "-CAfile", "ca.pem", "certificate.pem"], cwd=mine)
    for seconds, over in ((3 * DAY - 3600, 0), (3 * DAY + 3600, 1)):
        asked = ("openssl", "x509", "-noout", "-in", "certificate.pem", "-checkend", seconds)
        ran(asked, cwd=mine, code=over)


@pytest.mark.tls
@needs_openssl
def test_no_key_is_ever_overwritten(mine):
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    assert "File exists" in make_certificates(mine, code=1).stderr
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == before


@pytest.mark.tls
@needs_openssl
def test_nothing_is_left_of_certificates_that_could_not_be_made(tmp_path):
    (tmp_path / "openssl").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (tmp_path / "openssl").chmod(0o755)
    command = ["bash", CONFIGS / "make-certificates.sh", "new"]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert "broken" in ran(command, cwd=tmp_path, code=FAILED, PATH=path).stderr
    assert os.listdir(tmp_path) == ["openssl"]


@pytest.mark.parametrize("days", ["0", "-1", "a month"])
def test_days_are_a_number(tmp_path, days):
    assert "usage: " in make_certificates(tmp_path / "new", days, code=64).stderr
    assert not os.listdir(tmp_path)


@pytest.mark.tls
@needs_openssl
def test_settings_name_the_files_wherever_they_are(mine):
    comm = yaml.safe_load((mine / "dask.yaml").read_text())["distributed"]["comm"]
    pair = {"cert": str(mine / "certificate.pem"), "key": str(mine / "key.pem")}
    assert comm == {
        "require-encryption": True,
        "tls": {
            "ca-file": str(mine / "ca.pem"),
            **dict.fromkeys(("scheduler", "worker", "client"), pair),
        },
    }


@pytest.mark.tls
@needs_openssl
@pytest.mark.parametrize("page", [PAGE, ROOT / "docs" / "security.md"], ids=lambda page: page.name)
def test_the_pages_say_how_they_are_made_and_named(tmp_path, page):
    commands = blocks("bash", page)[0] + 'echo "$DASK_CONFIG"'
    done = ran(["bash", "-euc", commands], cwd=ROOT, HOME=str(tmp_path))
    assert done.stdout.splitlines()[-1] == str(tmp_path / "silchunk-tls" / "dask.yaml")
    assert (tmp_path / "silchunk-tls" / "dask.yaml").exists()


# A cluster that asks for them.


def on_tls(test):
    for mark in (pytest.mark.slow, pytest.mark.cluster, pytest.mark.tls, needs_openssl):
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def running(mine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("running")
    np.save(folder / "points.npy", X)
    with cluster(mine, folder) as found:
        yield found


def workers(running, mine):
    """Addresses of the workers that the scheduler has, once both have come."""
    security = Security(
        require_encryption=True,
        tls_ca_file=str(mine / "ca.pem"),
        tls_client_cert=str(mine / "certificate.pem"),
        tls_client_key=str(mine / "key.pem"),
    )
    with Client(running.address, security=security, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        return set(client.scheduler_info(n_workers=-1)["workers"])


def where(kind, running):
    """What names the scheduler of a cluster."""
    plain = running.address.replace("tls://", "tcp://")
    return {
        "file": ("--scheduler-file", "scheduler.json"),
        "tls": ("--scheduler", running.address),
        "tcp": ("--scheduler", plain),
    }[kind]


@on_tls
@pytest.mark.parametrize("kind", ["tls", "file"])
def test_those_with_the_certificate_compute(running, mine, kind):
    command = [*SILCHUNK, "bound", "points.npy", "--json", *where(kind, running)]
    done = ran(command, cwd=running.folder, folder=mine)
    assert json.loads(done.stdout)["bounds"][0]["upper_bound"] == silhouette_upper_bound(X)


@on_tls
def test_python_takes_the_certificate_as_the_page_says(running, mine):
    (code,) = blocks("python")
    done = ran([sys.executable, "-c", code], cwd=running.folder, TLS=str(mine))
    assert float(done.stdout) == silhouette_upper_bound(X)


@on_tls
@pytest.mark.parametrize(
    ("kind", "certificates", "reason"),
    [
        ("tls", None, "asks for a certificate"),
        ("file", None, "asks for a certificate"),
        ("tls", "others", "TLS certificate does not match"),
        ("tcp", None, "no scheduler answers"),
        ("tcp", "mine", "is not encrypted"),
    ],
)
def test_those_without_it_get_nothing(running, request, kind, certificates, reason):
    folder = certificates and request.getfixturevalue(certificates)
    accepted = running.text().count("Receive client connection")
    command = [*SILCHUNK, "bound", "points.npy", *where(kind, running)]
    done = ran(command, cwd=running.folder, folder=folder, code=FAILED)
    assert done.stdout == ""
    assert done.stderr.startswith("silchunk: ")
    (said,) = done.stderr.splitlines()
    assert reason in said
    assert where(kind.replace("file", "tls"), running)[1] in said
    assert running.text().count("Receive client connection") == accepted


@on_tls
@pytest.mark.parametrize("certificates", [None, "others"])
def test_a_worker_without_it_cannot_join(running, mine, request, certificates, tmp_path):
    folder = certificates and request.getfixturevalue(certificates)
    before = workers(running, mine)
    shutil.copy(running.folder / "scheduler.json", tmp_path)
    with started(f"{BY_SETTINGS} --death-timeout 5", tmp_path, folder) as worker:
        assert worker.wait(PATIENCE) != 0
    assert len(before) == 2
    assert workers(running, mine) == before


@on_tls
def test_the_key_is_on_no_command_line_and_in_no_file(running, mine):
    command = [*SILCHUNK, "bound", "points.npy", "--checkpoint", "job", *where("tls", running)]
    done = ran(command, cwd=running.folder, folder=mine, DASK_LOGGING__DISTRIBUTED="debug")
    assert "TLS connection with" in done.stderr, "all is logged that can be"
    files = [path for path in running.folder.rglob("*") if path.is_file()]
    assert running.folder / "job" / "silchunk-checkpoint.jsonl" in files
    texts = [path.read_bytes().decode("latin-1") for path in files]
    texts += [done.stdout, done.stderr, running.text()]
    for line in (mine / "key.pem").read_text().splitlines()[1:-1]:
        assert not any(line in text for text in texts)
