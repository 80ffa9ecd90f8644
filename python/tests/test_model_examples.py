"""The examples that train: they reach what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*args, **more):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, *map(str, args)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=170, **more)


@pytest.mark.parametrize("name", ["custom_kernel_in_model", "vision_mlp"])
def test_example(name):
    done = run(f"examples/{name}.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_train_gpt(tmp_path):
    short = ["examples/train_gpt.py", "--layers", 1, "--sample", 8]
    done = run(*short, "--steps", 200, "--goal", 2.4, "--plot", tmp_path / "loss.svg")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps/s" in done.stdout
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")


def test_train_gpt_resumes(tmp_path):
    kept = tmp_path / "g.safetensors"
    run("examples/train_gpt.py", "--layers", 1, "--sample", 0, "--steps", 6, "--goal", 9, "--checkpoint", kept)
    done = run("examples/train_gpt.py", "--layers", 1, "--sample", 0, "--steps", 12, "--goal", 9, "--resume", kept)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12/12" in done.stdout
