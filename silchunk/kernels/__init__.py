"""Compiled loops over blocks in memory: no Dask, no Zarr, no input or output."""
