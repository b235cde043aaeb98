"""The demo from end to end, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark


def test_the_demo_is_exact_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--seconds", "4"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exact: " in done.stdout
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("penstock-demo")] == []
