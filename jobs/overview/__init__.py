"""The operator's page of the placement service: what `status`, `promote --why` and `plan --explain` say."""
