"""One cache's plan, from its inventory and the region's predictions."""
