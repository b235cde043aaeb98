"""Spark SQL expressions over Arrow tables, in process, with the values, types and errors that they have in Spark."""
