"""What metrics, alert rules and dashboards are held against: the catalogue, and pages made of it."""
