"""The pipeline on PySpark: the data source and the export."""
