"""The lab: every experiment of the specs as a record that can be run: sweep → CSV, plot and verdict.

Machines are simulated: work is counted and multiplied by constants, so seconds are those of the machine that is
modelled and the same wherever the lab runs.
"""
