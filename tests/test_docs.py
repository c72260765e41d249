"""README, examples and cluster configurations are run, so that they cannot drift."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import silchunk

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text()
    for name in ("bounds", "silhouettes", "clustering", "input", "interoperability", "choosing-k")
}


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(*command, cwd, **environment):
    folder = Path(sys.executable).parent
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(example, tmp_path):
    assert run(sys.executable, str(example), cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "code", [code for code in blocks("python") if "# " in code], ids=["bound", "store"]
)
def test_readme_python_examples_print_what_they_say(code, tmp_path):
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    said = [line.split("# ")[1] for line in code.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == said


@pytest.mark.slow
def test_readme_shows_an_evaluation(tmp_path):
    code = next(code for code in blocks("python") if "evaluate(" in code)
    shown = next(block for block in blocks("text") if "A clustering of 569 points" in block)
    printed = run(sys.executable, "-c", code, cwd=tmp_path).stdout.split()
    assert shown.split() == printed[: len(shown.split())]
    assert "adjusted Rand index" in " ".join(printed[len(shown.split()) :])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_pages_print_what_they_say(page, tmp_path):
    code = "".join(blocks("python", PAGES[page]))
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    said = [line.split("  # ")[1] for line in code.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == said


def test_readme_has_two_set_up_commands():
    first, second = blocks("bash")[:2]
    assert first.strip() == "python -m pip install . && silchunk demo"
    assert second.strip() == 'python -m pip install ".[test]" && python -m pytest'


def test_readme_shows_the_demo(tmp_path):
    shown = next(block for block in blocks("text") if "k-means clustering of real data" in block)
    printed = run("silchunk", "demo", cwd=tmp_path).stdout

    def words(text):
        return re.findall(r"[\w.%*]+", text)

    assert words(shown) == words(printed)


@pytest.mark.slow
def test_readme_command_lines_run(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((300, 4)))
    np.save(tmp_path / "labels.npy", np.arange(300) % 3)
    table = np.random.default_rng(0).random((300, 4))
    np.savetxt(tmp_path / "points.csv", table, delimiter=",", header="a,b,c,d", comments="")
    shown = [line for block in blocks("console") for line in block.splitlines()]
    commands = [line[2:] for line in shown if line.startswith("$ silchunk ")]
    assert len(commands) >= 3
    for command in commands:
        run("bash", "-c", command, cwd=tmp_path)


def test_changelog_names_this_version():
    assert f"## {silchunk.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.cluster
def test_local_cluster_configuration(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((300, 4)))
    script = ROOT / "cluster-configs/local/run.py"
    done = run(sys.executable, str(script), "points.npy", cwd=tmp_path)
    assert "Silhouette upper bound of 300 points" in done.stdout


def test_slurm_script_runs_as_a_shell_script(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((300, 4)))
    script = ROOT / "cluster-configs/slurm/bound.sbatch"
    done = run("bash", str(script), "points.npy", cwd=tmp_path, SLURM_CPUS_PER_TASK="2")
    assert "any clustering: average silhouette width" in done.stdout
    assert len((tmp_path / "silchunk-0.csv").read_text().splitlines()) == 151
