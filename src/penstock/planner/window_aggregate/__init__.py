"""Which method sliding windows are aggregated by: costs, the choice, its explanation, who follows a running query."""

from penstock.planner.window_aggregate.choice import AggregateChoice, is_planned, plan_window_aggregate
from penstock.planner.window_aggregate.explain import explain_aggregate
from penstock.planner.window_aggregate.pilot import AggregatePilot

__all__ = ["AggregateChoice", "AggregatePilot", "explain_aggregate", "is_planned", "plan_window_aggregate"]
