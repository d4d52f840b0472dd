"""The service replayed over past days, and the champion that follows from it."""
