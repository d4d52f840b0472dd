"""What operators look at: status, doctor, figures for Prometheus."""
