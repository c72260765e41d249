"""``python -m silchunk``."""

from silchunk.cli import app

app(prog_name="silchunk")
