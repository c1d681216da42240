"""Reports about finished runs: tables, charts and one HTML page."""
