"""The only DuckDB that an analyst's text meets."""
