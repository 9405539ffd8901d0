"""What every room needs: errors, files, numbers as text, a bounded cache, stopping."""
