"""Measuring a cluster: how fast it takes messages, gives them, and answers."""
