"""The processes that work together: who they are, whether they live, and who reports to whom."""
