"""Evaluation of models by replay of held-out days, and promotion of the winner."""
