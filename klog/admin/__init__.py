"""What an operator does to a cluster: verbs that return rows and print nothing, and the shell."""
