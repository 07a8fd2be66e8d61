"""Tools of their own: they read files or clusters from outside and serve nothing."""
