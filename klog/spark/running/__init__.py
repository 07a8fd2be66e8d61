"""Where Spark runs: sessions, their workers, what is sent to them, and the file systems of their JVM."""
