"""Plans: integers only. From sizes and a byte budget to panels, tasks and peak memory.

A plan is made before any work and printed on request; a job that cannot fit is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass

from silchunk.errors import OverBudgetError

# The rows [start, stop) of one task.
PanelRange = tuple[int, int]

# Interpreter, NumPy, Dask, Zarr, measured by tests/test_memory.py; and numba compiling kernels.
UNCOMPILED_BYTES = 96 << 20
RUNTIME_BYTES = 232 << 20
# scikit-learn and scipy, loaded for metrics that come from them.
SCIKIT_LEARN_BYTES = 96 << 20
# scipy's optimisers, loaded for bounds of fixed cluster sizes, and what they take.
OPTIMISER_BYTES = 64 << 20

# Panels are 64 · 2^k rows: sums over rows run along one binary tree of 64-row leaves, whose
# nodes every such panel matches.
LEAF_ROWS = 64
PREFERRED_PANEL_ROWS = 256
LARGEST_PANEL_ROWS = 4096
LARGEST_CHECK_ROWS = 2048

# Tiles of LEAF_ROWS × TILE_COLUMNS distances lie on a fixed grid of global indices: the matrix
# product of a tile then has the same operands and shape in every plan, and the same bits.
TILE_COLUMNS = 1024
# Points are read this many at a time, unless their chunks are longer.
READ_ROWS = 8192

# Sums over points run over blocks of so many rows on a fixed grid, so that they do not depend on
# how points are stored or read; over fewer, a power of two, where so many would be more bytes.
GRID_ROWS = 4096
GRID_BYTES = 32 << 20

# Sampled rows take their distances in blocks of this many columns, on a fixed grid, and hold no
# more than this many of a row's distances at once, where they hold any.
STREAM_COLUMNS = 8192
HELD_VALUES = 1 << 16
# Bins of such a row, counted with what they hold: edges, counts, sums, losses, marks.
BINS_BYTES = 3 * 256 * 5 * 8
# Rows of a table of sizes that are summed in one task; sums do not depend on anything else.
TABLE_ROWS = 8192
# Numbers that a pass of a centroid algorithm sums for each centre, beside the features.
CENTRE_FACTS = 6


@dataclass(frozen=True)
class Plan:
    """How a job over rows of the n × n distances is cut into panels. All sizes in bytes or rows."""

    n: int
    n_rows: int  # that are computed: n, or fewer where they are sampled
    columns: int  # of a panel that are held at once
    itemsize: int
    panel_rows: int
    concurrency: int
    read_rows: int
    task_bytes: int
    resident_bytes: int
    runtime_bytes: int
    budget_bytes: int

    @property
    def n_panels(self) -> int:
        """Number of tasks: one per panel."""
        return -(-self.n_rows // self.panel_rows)

    @property
    def panel_bytes(self) -> int:
        """Size of one panel of distances."""
        return self.panel_rows * self.columns * self.itemsize

    @property
    def peak_bytes(self) -> int:
        """Most memory one process holds at any time, everything included."""
        return self.runtime_bytes + self.resident_bytes + self.concurrency * self.task_bytes

    def panels(self) -> list[PanelRange]:
        """Row ranges [start, stop) of the panels, in order."""
        return ranges(self.n_rows, self.panel_rows)

    @property
    def check_rows(self) -> int:
        """Side of the square tiles in which a matrix is compared with its transpose: as large as
        a task's memory allows, since stored rows are longer than a tile is wide."""
        side = LEAF_ROWS
        while 2 * side <= LARGEST_CHECK_ROWS and 6 * (2 * side) ** 2 * 8 <= self.task_bytes:
            side *= 2
        return side

    def __str__(self) -> str:
        return "\n".join(f"{name:<18}{value}" for name, value in self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """The plan as (name, value) pairs for people."""
        return [
            ("distances", f"{self.n_rows:,} x {self.n:,}, {self.itemsize} bytes each"),
            ("panels", f"{self.n_panels:,} of {self.panel_rows:,} rows, one task each"),
            ("panel size", format_bytes(self.panel_bytes)),
            ("at once", f"{self.concurrency} in each process"),
            ("one task", format_bytes(self.task_bytes)),
            ("held throughout", format_bytes(self.resident_bytes)),
            ("runtime", f"{format_bytes(self.runtime_bytes)} (interpreter and libraries)"),
            ("peak memory", f"{format_bytes(self.peak_bytes)} in each process"),
            ("budget", format_bytes(self.budget_bytes)),
        ]


def plan_panels(
    *,
    n: int,
    width: int,
    itemsize: int,
    budget_bytes: int,
    concurrency: int,
    from_points: bool,
    resident_bytes: int = 0,
    chunk_rows: int = 1,
    outputs: int = 1,
    row_results: int = 1,
    panel_copies: int = 1,
    panel_rows: int | None = None,
    sampled_rows: int | None = None,
    clusters: int = 0,
    centres: int = 0,
    runtime_bytes: int = RUNTIME_BYTES,
) -> Plan:
    """Plan a job that reduces the rows of an n × n distance matrix, or some of them; or one that
    compares points with centres, pass by pass.

    Parameters
    ----------
    n : int
        Number of points.
    width : int
        Columns of the input: features of the points, or n for a matrix.
    itemsize : int
        Bytes of one distance in a panel, 4 or 8.
    budget_bytes : int
        Bytes one process may use at its peak, everything included.
    concurrency : int
        Tasks that may run at once in one process; fewer are planned if they do not fit.
    from_points : bool
        Panels are computed from points; otherwise they are read from a matrix.
    resident_bytes : int
        Bytes of input and results held in memory throughout.
    chunk_rows : int
        Rows of the input that are stored together.
    outputs : int
        Float64 values for each point of the input that a task's result holds.
    row_results : int
        Float64 values for each row of its panel that it holds beside them.
    panel_copies : int
        Panels' worth of memory that a task takes for distances and what it makes of them.
    panel_rows : int, optional
        Rows of a panel where they are given, as by a store.
    sampled_rows : int, optional
        Number of rows, where they are a sample: computed from points, they are streamed over all
        points in blocks of columns, in memory that does not grow with n.
    clusters : int
        Number of clusters, where distances are reduced by cluster: those from points then tile by
        tile, in panels of a fixed length.
    centres : int
        Number of centres that points are compared with, where they are not with each other.
    runtime_bytes : int
        Bytes of the process before any data.
    Raises
    ------
    OverBudgetError
        If not even one task with the smallest panel fits.
    """
    streamed = sampled_rows is not None and from_points and not clusters
    n_rows = sampled_rows if sampled_rows is not None and from_points else n
    by_tiles = bool(clusters) and from_points
    grid = STREAM_COLUMNS if streamed else TILE_COLUMNS
    read_rows = max(READ_ROWS, _round_up(chunk_rows, grid)) if from_points else 0
    read_rows = min(read_rows, _round_up(n, grid))

    columns = STREAM_COLUMNS if streamed else min(n, TILE_COLUMNS if by_tiles else n)

    def task_bytes(panel_rows: int) -> int:
        rows = min(panel_rows, n_rows)
        if centres:
            # A few points and their distances to the centres; sums of a block, of nodes on the way
            # up the tree, and on their way to the driver.
            distances = 64 * (width + centres + 16) * 8
            reduced = 16 * centres * (width + CENTRE_FACTS) * 8
        elif streamed:
            # A block of columns in whole leaves; what is held of each row, twice while it is
            # sorted; bins.
            distances = _round_up(rows, LEAF_ROWS) * STREAM_COLUMNS * itemsize
            distances += rows * HELD_VALUES * itemsize + 2 * HELD_VALUES * 8
            reduced = rows * BINS_BYTES
        elif by_tiles:
            # One tile, of a few leaves; the block of points once more, sorted by cluster.
            distances = 4 * LEAF_ROWS * TILE_COLUMNS * itemsize + read_rows * (width + 4) * 8
            reduced = 2 * rows * clusters * 8 + outputs * n * 8
        elif clusters:
            # A few rows once more, sorted by cluster; the order.
            distances = (rows + 2 * LEAF_ROWS) * n * itemsize
            reduced = 2 * rows * clusters * 8 + 4 * n * 8
        else:
            distances = panel_copies * rows * n * itemsize
            reduced = 3 * outputs * n * 8 + 8 * n * 8
        if centres:
            # A read block, a decoded copy, directions, labels and weights, results.
            scratch = read_rows * (3 * width + 4 + row_results) * 8
        elif from_points:
            # A read block and one decoded copy of it; a tile's columns three times over in
            # float64; the panel's own rows, and once more where they are picked; the float64
            # product of a tile.
            scratch = 2 * read_rows * width * 8 + 3 * TILE_COLUMNS * width * 8
            scratch += 3 * (1 + streamed) * rows * width * 8 + 2 * LEAF_ROWS * TILE_COLUMNS * 8
        else:
            # The stored rows as read, decoded by whole chunks, next to the panel.
            scratch = rows * n * 8 + _round_up(rows, chunk_rows) * n * 8
        return distances + scratch + reduced + (0 if centres else rows * row_results * 8)

    preferred = max(PREFERRED_PANEL_ROWS, chunk_rows)
    if streamed:  # each batch of rows reads all points
        preferred = 2 * PREFERRED_PANEL_ROWS
    if by_tiles:  # of one length, so that sums are in one order
        panel_rows = panel_rows or PREFERRED_PANEL_ROWS
    sizes = [panel_rows or LEAF_ROWS]
    while panel_rows is None and sizes[-1] < min(LARGEST_PANEL_ROWS, preferred, n_rows):
        sizes.append(2 * sizes[-1])
    available = budget_bytes - runtime_bytes - resident_bytes
    # Keep every core busy first; longer panels only make reading and set-up cheaper.
    for running in range(concurrency, 0, -1):
        # Ranges of a pass begin on the grid: of several chunks, fewer are read twice.
        for several in ((1,) if chunk_rows == 1 else (4, 2, 1)) if centres else ():
            unit = 2 * grid_rows(width)
            read_rows = _round_up(several * max(unit, chunk_rows), unit)
            read_rows = min(read_rows, _round_up(n, min(unit, grid)))
            if running * task_bytes(sizes[-1]) <= available:
                break
        for rows in reversed(sizes):
            # Of a sample, every core has a part.
            too_long = streamed and panel_rows is None and (running - 1) * rows >= n_rows
            if running * task_bytes(rows) <= available and (running == 1 or not too_long):
                return Plan(
                    n=n,
                    n_rows=n_rows,
                    columns=columns,
                    itemsize=itemsize,
                    panel_rows=rows,
                    concurrency=running,
                    read_rows=read_rows,
                    task_bytes=task_bytes(rows),
                    resident_bytes=resident_bytes,
                    runtime_bytes=runtime_bytes,
                    budget_bytes=budget_bytes,
                )
    least = task_bytes(sizes[0])
    needed = runtime_bytes + resident_bytes + least
    remedies = [f"Raise memory= to {format_bytes(needed)} or more"]
    # Where the libraries alone do not fit, nothing else is of use.
    if itemsize == 8 and runtime_bytes < budget_bytes and not centres:
        remedies.append('pass dtype="float32"')
    if resident_bytes and runtime_bytes < budget_bytes:
        remedies.append("pass the input as a file instead of an array")
    raise OverBudgetError(
        f"{n:,} points need at least {format_bytes(needed)} of memory in each process "
        f"({format_bytes(runtime_bytes)} runtime, {format_bytes(resident_bytes)} input and "
        f"results, {format_bytes(least)} for one panel of {min(sizes[0], n_rows)} rows), but the "
        f"budget allows {format_bytes(budget_bytes)}. {', or '.join(remedies)}."
    )


def grid_rows(width: int) -> int:
    """Rows of a block of the grid, for points with ``width`` features."""
    rows = GRID_ROWS
    while rows > LEAF_ROWS and rows * width * 8 > GRID_BYTES:
        rows //= 2
    return rows


def ranges(n: int, step: int) -> list[PanelRange]:
    """Ranges [start, stop) of ``step`` that cover ``n``."""
    return [(start, min(n, start + step)) for start in range(0, n, step)]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def format_bytes(count: int) -> str:
    """Bytes for people, rounded up to what is shown: '231 MiB', '1.5 GiB'."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            tenths = -(-(10 * count) >> power)
            whole, tenth = divmod(tenths, 10)
            return f"{whole}.{tenth} {unit}" if whole < 100 else f"{whole + (tenth > 0)} {unit}"
    return f"{count} bytes"
