"""An S3 server on this machine that can be made to fail, for the tests that ask for it."""

from __future__ import annotations

import zarr

SECRET = "the-secret-of-these-tests"
BUCKET = "s3://my-bucket"


class Server:
    """An S3 server, and which of its answers are to be faults."""

    def __init__(self, app):
        self.app = app
        self.fails = lambda path: False
        self.failed = []

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "GET" or not self.fails(path):
            return self.app(environ, start_response)
        self.failed.append(path)
        start_response("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]


def address(name, values=None, **options):
    if values is not None:
        zarr.create_array(f"{BUCKET}/{name}", data=values, **options)
    return f"{BUCKET}/{name}"


def through_obstore(name, **options):
    from obstore.store import S3Store

    store = zarr.storage.ObjectStore(S3Store("my-bucket", **options), read_only=True)
    return zarr.open_array(store, path=name, mode="r")
