"""What can be asked, as values, and how a release of it is written down."""
