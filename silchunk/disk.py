"""Room on disk: asked for before a job, and spoken of when a write finds none."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from silchunk.errors import DiskFullError, OutputExistsError
from silchunk.plan import format_bytes


@contextmanager
def room_for(path: Path, nbytes: int | None) -> Iterator[None]:
    """Turn a write that fails for want of space into an error with path and, if known, bytes.

    Raises
    ------
    DiskFullError
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        free = shutil.disk_usage(next(p for p in path.parents if p.exists())).free
        wanted = "more" if nbytes is None else f"{nbytes:,} bytes"
        raise DiskFullError(
            f"no room to write {wanted} to {path} ({os.strerror(error.errno)}; "
            f"{free:,} bytes free on that disk). Make room, then run the same again: it goes on."
        ) from error


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in its place so that it is seen old or new, never in between; on disk when this
    returns."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)  # of a process that was killed; not to be followed
    with temporary.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have a new file written under another name first, so that it appears whole or not at all.

    Raises
    ------
    OutputExistsError
        The name is taken; what is there is left as it is.
    DiskFullError
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with room_for(path, None), temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        _take_name(temporary, path)
    except FileExistsError as error:
        raise OutputExistsError(f"{path} exists already and is left as it is.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _take_name(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # unlike a rename, fails if the name is taken
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.rename(path)


def preflight(path: Path, nbytes: int, n_files: int, freed: int = 0) -> None:
    """Refuse what cannot fit on the disk, ``freed`` bytes of which are about to be deleted.

    Raises
    ------
    DiskFullError
        With bytes or files needed and free.
    """
    folder = next(parent for parent in path.parents if parent.exists())
    free = shutil.disk_usage(folder).free + freed
    if nbytes > free:
        raise DiskFullError(
            f"{path} will take about {format_bytes(nbytes)}, but {folder} has "
            f'{format_bytes(free)} free. Use another disk, dtype="float32", or keep_bits="small".'
        )
    inodes = os.statvfs(folder)
    if inodes.f_files and n_files > inodes.f_favail:
        raise DiskFullError(
            f"{path} will take {n_files:,} files, but {folder} allows {inodes.f_favail:,} more. "
            "Raise memory=, which makes panels longer and files fewer."
        )
