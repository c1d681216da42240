"""What finished runs say: tables, charts, one page."""
