"""The admin as a site: who gets in, the overview, and pages that belong to no one table."""
