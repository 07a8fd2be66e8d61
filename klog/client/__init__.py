"""The client side: the cluster as a client sees it, and the ways to read and write it."""
