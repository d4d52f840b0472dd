"""The operator's pages: the content of `status`, `promote --why` and `plan --explain` as HTML."""
