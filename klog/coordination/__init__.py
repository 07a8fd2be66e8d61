"""Registries, elections and sessions in ZooKeeper. The only package that imports kazoo."""
