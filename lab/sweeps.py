"""The axes that experiments share: what is turned, and how it is written below the axis."""

from __future__ import annotations

from dataclasses import replace

from lab.experiments import Series, Sweep
from lab.setups import Setup


def rates(*values: float) -> Sweep:
    """Arrival rates, the same for both streams."""
    return Sweep("arrival rate [tuples/s per stream]", values, at_rate)


def biases(*values: float) -> Sweep:
    """Burstiness, the same for both streams."""
    return Sweep("bias b of the b-model", values, at_bias)


def at_rate(setup: Setup, rate: float) -> Setup:
    """With both streams at `rate`."""
    return replace(setup, workload=replace(setup.workload, rate=rate))


def at_bias(setup: Setup, bias: float) -> Setup:
    """With both streams of burstiness `bias`."""
    return replace(setup, workload=replace(setup.workload, bias=bias))


def each_rate(setup: Setup, *values: float) -> tuple[Series, ...]:
    """A curve for each rate."""
    return tuple(Series(f"{rate:g}/s", at_rate(setup, rate)) for rate in values)


def backlogs(setup: Setup, *values: float) -> dict[str, float]:
    """For the curve of each rate, a twentieth of all tuples of the run: a join that keeps up has fewer waiting."""
    return {f"{rate:g}/s": 0.05 * 2 * rate * setup.workload.span for rate in values}
