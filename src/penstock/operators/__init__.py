"""One package per family of operators, one module per named algorithm. Arrow in, Arrow out, no Spark."""
