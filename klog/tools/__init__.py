"""Programs over messages and files: produce, tail, replay, mirror, audit, perf, and what reads a log dir at rest."""
