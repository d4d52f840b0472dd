"""Placement jobs: compute where each dataset belongs, and serve the answers to Rucio and its clients."""
