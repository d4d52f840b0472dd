"""Several caches that hold no file twice: which server holds which, and their replay."""
