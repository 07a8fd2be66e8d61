"""This broker's replicas: led, followed, repaired; in-sync sets and log maintenance."""
