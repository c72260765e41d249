"""Real data sets with known classes, read from installed packages: nothing is downloaded.

    apt-get install --no-install-recommends r-cran-mlbench dataset-fashion-mnist
    pip install pandas pyreadr
    python benchmarks/data_sets.py              # a table of names, points, features and classes
    python benchmarks/data_sets.py --root DIR   # packages unpacked below DIR, without R itself:

    apt-get download r-cran-mlbench dataset-fashion-mnist
    for package in *.deb; do dpkg-deb -x "$package" DIR; done

Debian's r-cran-mlbench holds each data set of the R package mlbench as a .rda file, which pyreadr
reads without R. Iris, wine, breast cancer and digits come with scikit-learn.

- Tables are standardised: zero mean and unit variance (over n) in each feature. Rows with a missing
  value go first, then features that are constant.
- Images keep every pixel and are divided by their white: 255 in Fashion-MNIST, 16 in digits.
- A factor whose levels are numbers is read as these numbers: Ionosphere's V1, 0 or 1 (its V2 is
  constant). Vowel's V1, a factor too, is dropped: it says who spoke.
- Pima is PimaIndiansDiabetes2, where a blood pressure, glucose, insulin, skin fold or body mass
  index of zero counts as missing: half of its rows go.
- Fashion-MNIST is its 10,000 test images. Shuttle keeps all its points, though a class has ten.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

MLBENCH = "usr/lib/R/site-library/mlbench/data"
FASHION = "usr/share/datasets/fashion-mnist"

# name here: (name in mlbench, the column of classes, columns left out)
MLBENCH_TABLES = {
    "glass": ("Glass", "Type", ()),
    "ionosphere": ("Ionosphere", "Class", ()),
    "letter": ("LetterRecognition", "lettr", ()),
    "pima": ("PimaIndiansDiabetes2", "diabetes", ()),
    "satellite": ("Satellite", "classes", ()),
    "shuttle": ("Shuttle", "Class", ()),
    "sonar": ("Sonar", "Class", ()),
    "vehicle": ("Vehicle", "Class", ()),
    "vowel": ("Vowel", "Class", ("V1",)),
}


class DataSet(NamedTuple):
    """Points, their classes, and how many classes there are."""

    X: np.ndarray  # (n, d) float64
    y: np.ndarray  # (n,) int64, from 0 to n_classes - 1
    n_classes: int


def load(root: str | Path = "/") -> dict[str, DataSet]:
    """Every data set by name, smallest first: 70 MiB of points.

    ``root`` is where the Debian packages are unpacked. Raises FileNotFoundError or
    ModuleNotFoundError where a package is missing, naming it.
    """
    root = Path(root)
    found = {**_from_sklearn(), **_from_mlbench(root), "fashion_mnist": _fashion_mnist(root)}
    return dict(sorted(found.items(), key=lambda item: item[1].X.size))


def standardised(X: np.ndarray) -> np.ndarray:
    """Zero mean and unit variance in each feature; constant features are dropped."""
    X = X[:, np.ptp(X, axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def _data_set(X: np.ndarray, classes: np.ndarray) -> DataSet:
    names, y = np.unique(classes, return_inverse=True)
    return DataSet(np.ascontiguousarray(X, dtype=np.float64), y.astype(np.int64), len(names))


def _from_sklearn() -> dict[str, DataSet]:
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

    tables = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer}
    found = {}
    for name, read in tables.items():
        X, y = read(return_X_y=True)
        found[name] = _data_set(standardised(X), y)
    X, y = load_digits(return_X_y=True)
    found["digits"] = _data_set(X / 16, y)
    return found


def _from_mlbench(root: Path) -> dict[str, DataSet]:
    missing = [name for name in ("pandas", "pyreadr") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the .rda files of r-cran-mlbench need {' and '.join(missing)}: "
            f"pip install {' '.join(missing)}",
            name=missing[0],
        )
    import pyreadr

    found = {}
    for name, (object_name, class_column, left_out) in MLBENCH_TABLES.items():
        path = _installed(root / MLBENCH / f"{object_name}.rda", "r-cran-mlbench")
        table = pyreadr.read_r(path)[object_name].dropna()
        features = table.drop(columns=[class_column, *left_out]).astype(np.float64)
        classes = table[class_column].astype(str)
        found[name] = _data_set(standardised(features.to_numpy()), classes.to_numpy())
    return found


def _fashion_mnist(root: Path) -> DataSet:
    def content(name: str, header_bytes: int) -> np.ndarray:
        path = _installed(root / FASHION / name, "dataset-fashion-mnist")
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header_bytes)

    pixels = content("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28 * 28)
    return _data_set(pixels / 255, content("t10k-labels-idx1-ubyte.gz", 8))


def _installed(path: Path, package: str) -> Path:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: apt-get install --no-install-recommends {package}, "
            "or unpack that package elsewhere and name the folder as root"
        )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="/", metavar="DIR")
    options = parser.parse_args()
    print(f"{'name':<16}{'n':>8}{'d':>6}{'classes':>9}{'least':>8}{'greatest':>10}")
    for name, (X, y, n_classes) in load(options.root).items():
        sizes = np.bincount(y)
        print(
            f"{name:<16}{X.shape[0]:>8,}{X.shape[1]:>6}{n_classes:>9}"
            f"{sizes.min():>8,}{sizes.max():>10,}"
        )


if __name__ == "__main__":
    sys.exit(main())
