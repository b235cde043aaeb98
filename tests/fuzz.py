"""``make fuzz``: draw anew, for a given time, and print what reproduces a failure.

A round is the draws of tests/draws, some of them on Spark, and every property, all from one seed. Rounds follow each
other until the time is over; one that has begun is finished.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys
import time

ROUND = [
    ["tests/draws", "--draw-cases=1000"],
    ["tests/spark/test_join_draws.py", "tests/spark/test_lookup_draws.py", "--draw-cases=20"],
    ["tests/spark/test_predicate_draws.py", "--draw-cases=20"],
    ["tests/spark/test_expression_draws.py", "--draw-cases=1000"],
    ["tests", "-n", "2", "-m", "hypothesis and not spark and not deep", "--hypothesis-profile=fuzz"],
]


def main() -> int:
    """Run rounds until the time is over or something fails."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200, help="how long to go on beginning anew (20 minutes)")
    parser.add_argument("--seed", type=int, help="the seed of the first round, to repeat one (random)")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(2**32)
    until, parts = time.monotonic() + asked.seconds, 0
    while True:
        for part in ROUND:
            if parts and time.monotonic() >= until:
                print(f"make fuzz: {parts} parts, nothing found.")
                return 0
            command = [sys.executable, "-m", "pytest", *part, f"--draw-seed={seed}", f"--hypothesis-seed={seed}"]
            print(f"make fuzz: {shlex.join(command[1:])}", flush=True)
            if subprocess.run(command, check=False).returncode:
                print(
                    f"make fuzz: seed {seed} fails. Repeat it by: {shlex.join(command)}\n"
                    f"Of tests/draws, one case alone: add the --draw=… that stands before it above. "
                    f"Of a property: add the @reproduce_failure line that Hypothesis printed."
                )
                return 1
            parts += 1
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
