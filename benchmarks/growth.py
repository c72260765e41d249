"""How the time of a bound grows with n: the exponent of a line through (log n, log seconds).

    python benchmarks/growth.py                # 10,000 to 100,000 points under 1 GiB, two minutes
    python benchmarks/growth.py --largest 40000 --json out.json

Medians of fresh processes, which compile or load their kernels first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import growth_exponent, machine, measure, print_machine, write_json

SIZES = (10_000, 20_000, 40_000, 100_000)
BOUND = str(Path(__file__).with_name("bound.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    sizes = [n for n in SIZES if n <= options.largest]
    rows = [measure(BOUND, "one_size", n, options.repeats) for n in sizes]
    results = {"machine": machine(), "rows": rows, "growth_exponent": growth_exponent(rows)}
    print_machine(results["machine"])
    print(f"\n{'n':>10}{'seconds':>10}{'peak MiB':>10}")
    for row in rows:
        print(f"{row['n']:>10,}{row['seconds']:>10.2f}{row['peak_bytes'] / 2**20:>10.0f}")
    print(f"\ngrowth exponent {sizes[0]:,} to {sizes[-1]:,}: {results['growth_exponent']:.3f}")
    write_json(options.json, results)


if __name__ == "__main__":
    main()
