"""What users touch: flows, sources, streams, outlets and sinks – an immutable graph, run by a host."""
