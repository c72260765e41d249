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

    Only what is a node of that tree is added up beforehand, so rows that are cut in any way give
    the same additions in the same order. Holds one vector for each level.

    Parameters
    ----------
    first : int
        Place of the first leaf in the whole tree.
    """

    def __init__(self, first: int = 0) -> None:
        self.nodes: list[Node] = []
        self._end = first

    def add(self, node: Node) -> None:
        """Append the next leaves."""
        self._end += 1 << node.level
        # A node of the next level ends at a multiple of its own length.
        while (
            self.nodes and self.nodes[-1].level == node.level and self._end % (2 << node.level) == 0
        ):
            node = Node(node.level + 1, self.nodes.pop().total + node.total)
        self.nodes.append(node)

    def total(self) -> Vector:
        """The sum of all leaves added so far."""
        total = self.nodes[-1].total
        for node in reversed(self.nodes[:-1]):
            total = node.total + total
        return total
