"""What brokers agree on through ZooKeeper: registries, elections, sessions. The only package that imports kazoo."""
