"""The controller's real code against a model of ZooKeeper and brokers, in virtual time (`bench --simulation`)."""
