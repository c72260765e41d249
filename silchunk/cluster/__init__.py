"""Centroid clustering as map-reduce over row ranges: k-means, K-Sil and their kin."""
