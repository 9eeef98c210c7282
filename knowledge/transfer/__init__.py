"""A corpus as files that can be taken along: which rows, in which form, out and in again."""
