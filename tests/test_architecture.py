"""Imports point one way, and each library is imported in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import silchunk

ROOT = Path(silchunk.__file__).parent

# A module may import from the levels above its own line, never from its own or below.
LEVELS = [
    {"errors"},
    {"npy_files", "zarr_arrays"},
    {"plan", "progress", "machine", "parcel", "sums", "buffers", "blas", "rows", "shard", "inbox"},
    {"stopping", "disk", "sparse_rows", "readers.libraries"},
    {"engine.remote"},
    {"engine.arrays", "engine.connecting", "engine.flight"},
    {"engine"},
    {"readers.scratch"},
    {"readers.tables"},
    {"readers.delimited", "readers.parquet", "readers.npz", "readers.encodings", "readers.frames"},
    {"readers.hdf5"},
    {"readers"},
    {"points", "confidence"},
    {"scaling"},
    {"labels", "journal", "pages"},
    {"constraints", "draws", "agreement"},
    {"kernels.vectors", "kernels.silhouette", "kernels.manhattan"},
    {"kernels.distance", "kernels.bound", "kernels.transport", "condensed", "storage", "row_table"},
    {"kernels.blocks", "kernels.ranking", "kernels.exponential", "kernels.segments"},
    {"kernels.differences", "kernels.pair_sums"},
    {"kernels.streamed", "kernels.curve", "transport", "rounding"},
    {"kernels.nearest"},
    {"kernels.centroids", "kernels.dunn"},
    {"kernels.lloyd", "kernels.seeding"},
    {"metric_kinds", "bound_result", "silhouette_store", "dunn_result"},
    {"metrics"},
    {"panels", "scan", "precomputed", "provenance", "manhattan", "silhouette_result"},
    {"symmetric", "reduction", "silhouette_bars", "tiles"},
    {"writing", "streaming", "cluster_sums"},
    {"verify"},
    {"distances"},
    {"prepare"},
    {"checkpoint", "centroids", "dunn_jobs", "labelled_jobs", "cluster.points", "cluster.names"},
    {"cluster.labels", "cluster.distances"},
    {"cluster.passes"},
    {"cluster.iteration", "cluster.seeding"},
    {"cluster.saved"},
    {"cluster.fitting"},
    {"cluster.base"},
    {"cluster.kmeans", "cluster.ksil"},
    {"cluster.weighted"},
    {"cluster.choices"},
    {"cluster"},
    {"bound_jobs", "silhouette_jobs", "indices", "dunn"},
    {"sized", "sampling", "estimate", "silhouettes"},
    {"bounds", "build", "ceilings", "cluster_size", "export", "plots", "sweep_jobs"},
    {"report", "sweep_clusterings"},
    {"sweep_result"},
    {"evaluation", "sweeping"},
    {"scorers"},
    {"__init__"},
    {"demo"},
    {"cli.commands"},
    {"cli.speaking"},
    {"cli.inputs"},
    {"cli.base"},
    {"cli.show", "cli.execution"},
    {"cli.bounds", "cli.cluster", "cli.estimates", "cli.scores", "cli.stores"},
    {"cli.report", "cli.sweep"},
    {"cli"},
    {"__main__"},
]
LEVEL = {module: level for level, modules in enumerate(LEVELS) for module in modules}
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path != ROOT / "kernels" / "__init__.py"
)


def imports(module):
    """(imported name, line) of every import, those inside functions too."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    path = path if path.exists() else path.with_suffix("") / "__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def own_module(name):
    """'silchunk.kernels.bound.BLOCK' -> 'kernels.bound'; 'silchunk.engine' -> 'engine'."""
    parts = name.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in LEVEL:
            return ".".join(parts[:length])
    return "__init__"


def test_every_module_has_its_level():
    assert set(MODULES) == set(LEVEL)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    for name, line in imports(module):
        if name.split(".")[0] == "silchunk":
            imported = own_module(name)
            assert LEVEL[imported] < LEVEL[module], f"{module}:{line} imports {imported}"


@pytest.mark.parametrize("module", MODULES)
def test_libraries_have_one_home(module):
    heads = {name.split(".")[0] for name, _ in imports(module)}
    if module.split(".")[0] != "engine":
        assert not heads & {"dask", "distributed"}
    if module.startswith("kernels"):
        # LLVM vector code is written in few places.
        written = ("kernels.vectors", "kernels.ranking", "kernels.blocks")
        llvm = {"llvmlite"} if module in written else set()
        assert heads <= {"__future__", "typing", "math", "numba", "numpy", "silchunk", *llvm}
    if module not in (
        "zarr_arrays",
        "rows",
        "points",
        "condensed",
        "storage",
        "distances",
        "export",
        "silhouette_store",
    ):
        assert "zarr" not in heads
    if module not in ("silhouette_result", "sweep_result"):
        assert "pandas" not in heads
    if not module.startswith(("cli", "demo", "progress")):
        assert not heads & {"rich", "typer"}


def test_files_are_small():
    for path in ROOT.rglob("*.py"):
        lines = path.read_text().count("\n")
        assert lines <= 420, f"{path.name} has {lines} lines: it is two files"


@pytest.mark.parametrize("name", silchunk.__all__)
def test_public_names_exist_and_are_documented(name):
    assert getattr(silchunk, name).__doc__
    assert name in dir(silchunk)


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="'silchunk' has no attribute 'silhouette'"):
        silchunk.silhouette  # noqa: B018 (the access is what is tested)
