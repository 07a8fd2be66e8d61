"""The verbs: they return dataclasses and print nothing."""
