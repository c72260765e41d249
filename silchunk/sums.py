"""Sums over rows whose bits do not depend on how the rows are cut into panels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Node(NamedTuple):
    """The sum of 2^level consecutive leaves."""

    level: int
    total: Vector


class AlignedSum:
    """Adds vectors along a binary tree of leaves.

    A panel of 2^k leaves is a node of that tree, so any panel length gives the same additions in
    the same order. Holds one vector for each level.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> None:
        """Append the next leaves; a node never spans what is not aligned to its own length."""
        while self.nodes and self.nodes[-1].level == node.level:
            node = Node(node.level + 1, self.nodes.pop().total + node.total)
        self.nodes.append(node)

    def total(self) -> Vector:
        """The sum of all leaves added so far."""
        total = self.nodes[-1].total
        for node in reversed(self.nodes[:-1]):
            total = node.total + total
        return total
