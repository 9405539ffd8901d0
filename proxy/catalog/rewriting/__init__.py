"""Questions about the catalog, rewritten for the database that answers them."""
