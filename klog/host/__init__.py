"""This process and its host: garbage collection by the clock, a watchdog, the number of open files."""
