"""How good models are: metrics, plots, replays against rivals, and the promotion rule."""
