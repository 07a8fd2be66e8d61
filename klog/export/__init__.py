"""The export of messages to files: what lies where in its root, and the verbs that work on it."""
