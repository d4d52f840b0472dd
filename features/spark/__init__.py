"""Feature transforms: pure `DataFrame -> DataFrame`, no session, path or clock."""
