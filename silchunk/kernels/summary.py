"""What one look at every value tells of the features of a block of points."""

from __future__ import annotations

from silchunk.kernels.distance import Block, compiled


@compiled  # type: ignore[untyped-decorator]
def summarise(points: Block, step: int, sums: Block, low: Block, high: Block) -> None:
    """Sums of ``step`` rows at a time, and the range, of each feature.

    Parameters
    ----------
    points : (r, d) float32 or float64, C-contiguous
    step : int
    sums : (⌈r / step⌉, d) float64, overwritten; not finite where a value is not, or they overflow
    low, high : (d,) of the dtype of the points, overwritten; NaN is passed over
    """
    for k in range(points.shape[1]):
        low[k] = high[k] = points[0, k]
    sums[:] = 0.0
    for i in range(points.shape[0]):
        row, total = points[i], sums[i // step]
        for k in range(row.shape[0]):
            value = row[k]
            total[k] += value
            low[k] = value if value < low[k] else low[k]
            high[k] = value if value > high[k] else high[k]
