"""Backups of Delta tables: chains of full and incremental ones in a repository that verifies, restores and forgets."""
