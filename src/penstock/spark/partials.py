"""Which columns partial results of joins have in the state of a checkpoint: recorded before its first epoch."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import CheckpointError, StateError
from penstock.flow.sinks import Sink
from penstock.runtime.partials import NotKeptError, narrowed
from penstock.spark.restarts import Start
from penstock.storage.versioned import Checkpoint

_RECORD = "partials.json"


def partials_on_record(checkpoint: Checkpoint) -> bool:
    """Whether it is on record which columns partial results have."""
    return checkpoint.records.read(_RECORD) is not None


def narrowed_on_spark(sinks: Sequence[Sink], checkpoint: Checkpoint) -> list[Sink]:
    """The sinks of a flow whose joins pass on what they did when its state was first written.

    State from before that was on record has all columns, and goes on with them.
    """
    begun = checkpoint.latest().epoch >= 0 or checkpoint.planned(0) is not None
    record = checkpoint.records.read(_RECORD)
    if begun and record is None:
        if Start.had_partials(checkpoint):
            raise StateError.missing(checkpoint.records.path(_RECORD))
        return list(sinks)
    try:
        made, kept = narrowed(sinks, record["columns"] if begun and record is not None else None)
    except NotKeptError as wrong:
        shown = ", ".join(column.partition("_")[2] or column for column in wrong.columns)
        raise CheckpointError(
            f"The state of {wrong.join} in checkpoint {checkpoint.uri} has partial results without {shown}: no sink "
            f"asked for it when the flow first started, and one does now. Nothing was touched. Undo the change of the "
            f"select, or start with a new checkpoint folder."
        ) from wrong
    if kept and not begun:
        checkpoint.records.write(_RECORD, {"columns": kept})
    return made
