"""What runs, seen: status, doctor, the operator's page, placement, the report of a site."""
