"""The in-process host: Arrow tables through the same graph, no JVM."""
