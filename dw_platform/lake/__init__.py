"""Delta tables and the Spark session that works on them; the only importer of pyspark."""
