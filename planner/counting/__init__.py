"""SQL that counts and sums rows by cells, the same for every engine."""
