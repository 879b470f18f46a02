"""Operational databases, read in pages that resume exactly where they stopped: keyset, tokens, types, values, health."""
