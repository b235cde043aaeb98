"""SIGTERM and Ctrl-C in a driver that waits: the running epoch commits, and nothing is said about it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.conftest import Feed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Twenty epochs to read, and room for a checkpoint."""
    folder = tmp_path / "flow"
    rows = Feed(folder / "rows", pa.schema({"t": pa.int64()}))
    for n in range(20):
        rows.add(pa.table({"t": [n]}))
    return folder


def drive(folder: Path, how: str, *signals: int, log) -> tuple[int, list[str]]:
    """Start the driver, send it some signals when its second epoch runs; its exit code and what it said."""
    said = []
    with log.open("w") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.drivers.waiting", str(folder), how],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            for line in driver.stdout:
                said.append(line.strip())
                if sum(each.startswith("begin") for each in said) == 2 and signals:
                    for number in signals:
                        driver.send_signal(number)
                        time.sleep(0.2)  # two signals of a kind that come at once are one
                    signals = ()
            return driver.wait(60), said
        finally:
            driver.kill()


INTERRUPTED = re.compile(r".* WARN Shell: Interrupted while .*\njava.lang.InterruptedException\n(\tat .*\n)*")
"""What Hadoop logs if Spark's thread is stopped between epochs while a program sets the rights of a file."""


def printed(log: Path) -> str:
    return INTERRUPTED.sub("", log.read_text())


def quiet(log: Path) -> bool:
    """Whether nothing was said of a failure: what remains are Spark's greetings."""
    text = printed(log)
    return len(text.splitlines()) < 20 and not any(word in text for word in ("Error", "Exception", "Traceback"))


def test_on_sigterm_a_waiting_driver_commits_its_epoch_and_goes_on_behind_await_end(folder, tmp_path):
    code, said = drive(folder, "start", signal.SIGTERM, log=tmp_path / "stderr")
    assert said == ["begin 0", "commit 0", "begin 1", "commit 1", "stopped"]
    assert code == 0
    assert quiet(tmp_path / "stderr"), (tmp_path / "stderr").read_text()


def test_on_ctrl_c_a_run_commits_its_epoch_and_is_interrupted_with_the_streams_open(folder, tmp_path):
    code, said = drive(folder, "run", signal.SIGINT, log=tmp_path / "stderr")
    assert said == ["begin 0", "commit 0", "begin 1", "commit 1"]
    assert code == -signal.SIGINT
    lines = printed(tmp_path / "stderr").splitlines()
    assert "KeyboardInterrupt" in lines
    assert not [line for line in lines if "Exception" in line or "Error" in line]


@pytest.mark.deep
def test_a_second_ctrl_c_cancels_the_epoch_which_the_next_start_repeats(folder, tmp_path):
    code, said = drive(folder, "start", signal.SIGINT, signal.SIGINT, log=tmp_path / "stderr")
    assert said == ["begin 0", "commit 0", "begin 1"]
    assert code == -signal.SIGINT
    code, said = drive(folder, "start", signal.SIGTERM, log=tmp_path / "stderr")
    assert said == ["begin 1", "commit 1", "begin 2", "commit 2", "stopped"]
