"""The kit of pages: page, drawing, plots, verdicts, and the files that `--out` writes. It knows no job."""
