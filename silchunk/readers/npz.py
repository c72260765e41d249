"""``.npz`` archives: of arrays, or a sparse matrix that scipy has saved."""

from __future__ import annotations

import lzma
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from silchunk.disk import room_for
from silchunk.errors import InputError, InputTypeError
from silchunk.npy_files import map_npy
from silchunk.readers.scratch import owning, scratch
from silchunk.readers.tables import must_be_file, nearest
from silchunk.rows import Block, NpyRows
from silchunk.sparse_rows import CsrRows, NpyVector, checked_csr

COPIED_AT_ONCE = 1 << 20
# What reading a member that is damaged, needs a password, or is packed in a way that is not known
# ends with; the last two are RuntimeErrors.
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
SPARSE = {"data", "indices", "indptr", "shape", "format"}


def npz_rows(path: str, inside: str | None, name: str) -> NpyRows | CsrRows:
    """Points in an archive; they are unpacked once, into a scratch file.

    Raises
    ------
    InputError
        There is no such array, or it cannot be read.
    InputTypeError
        A sparse matrix of another format than CSR.
    """
    described = f"{name}: {path}"
    with _opened(path, described) as archive, scratch() as folder:
        names = _names(archive)
        if inside is None and "format" in names and "shape" in names:
            return _sparse(archive, folder, names, described)
        file = _unpacked(archive, _chosen(names, inside, path, described), folder, described)
        mapped = _mapped(file, described)
        if mapped.ndim != 2:
            raise InputError(
                f"{described}: points are 2-D, one row each; {file.stem!r} has shape "
                f"{mapped.shape}."
            )
        rows = NpyRows(str(file), (mapped.shape[0], mapped.shape[1]), mapped.dtype)
    owning(rows, folder)
    return rows


def npz_vector(path: str, inside: str | None, name: str) -> Block:
    """Any array of an archive, in memory."""
    described = f"{name}: {path}"
    with _opened(path, described) as archive:
        chosen = _chosen(_names(archive), inside, path, described)
        try:
            with archive.open(f"{chosen}.npy") as stream:
                array: Block = np.lib.format.read_array(stream, allow_pickle=False)
        except (ValueError, OSError, *DAMAGED) as error:
            raise _unreadable(f"{described}: {chosen!r}", error) from error
    return array


def _opened(path: str, described: str) -> zipfile.ZipFile:
    must_be_file(path, described)
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{described} is not a readable .npz file: {error}") from error


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [one[:-4] for one in archive.namelist() if one.endswith(".npy")]


def _chosen(names: list[str], inside: str | None, path: str, described: str) -> str:
    if inside is None:
        if len(names) == 1:
            return names[0]
        raise InputError(
            f"{described} holds {len(names)} arrays; say which: "
            + (", ".join(f"{path}:{one}" for one in names[:8]) or "there is none")
        )
    if inside in names:
        return inside
    raise InputError(f"{described} has no array {inside!r}{nearest(inside, names)}")


def _unpacked(archive: zipfile.ZipFile, chosen: str, folder: Path, described: str) -> Path:
    """A member as a file of its own: members are ``.npy`` files, compressed or not."""
    member = f"{chosen}.npy"
    target = folder / f"{Path(chosen).name}.npy"  # never out of the folder
    try:
        with (
            room_for(target, archive.getinfo(member).file_size),
            archive.open(member) as stream,
            target.open("wb") as copy,
        ):
            shutil.copyfileobj(stream, copy, COPIED_AT_ONCE)
    except DAMAGED as error:
        raise _unreadable(f"{described}: {chosen!r}", error) from error
    return target


def _mapped(file: Path, described: str) -> Block:
    try:
        return map_npy(str(file))
    except (ValueError, EOFError) as error:
        raise _unreadable(f"{described}: {file.stem!r}", error) from error


def _unreadable(described: str, error: Exception) -> InputError:
    reason = str(error)
    if "pickle" in reason or "Python objects" in reason or "allow_pickle" in reason:
        reason = "it holds Python objects; save labels as labels.astype(str), numbers as floats"
    return InputError(f"{described} cannot be read: {reason}")


def _sparse(archive: zipfile.ZipFile, folder: Path, names: list[str], described: str) -> CsrRows:
    def read(one: str) -> Any:
        with archive.open(f"{one}.npy") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    try:
        form = read("format").item()
        form = form.decode() if isinstance(form, bytes) else str(form)
        shape = tuple(int(length) for length in read("shape"))
    except (ValueError, OSError, *DAMAGED) as error:
        raise _unreadable(described, error) from error
    if form != "csr" or set(names) < SPARSE or len(shape) != 2:
        raise InputTypeError(
            f"{described} is a sparse matrix of format {form!r}; rows are read from CSR: "
            "scipy.sparse.save_npz(path, matrix.tocsr())."
        )
    vectors = []
    for one in ("data", "indices", "indptr"):
        file = _unpacked(archive, one, folder, described)
        mapped = _mapped(file, described)
        vectors.append(NpyVector(str(file), mapped.shape, mapped.dtype))
    rows = checked_csr(vectors, (shape[0], shape[1]), described)
    owning(rows, folder)
    return rows
