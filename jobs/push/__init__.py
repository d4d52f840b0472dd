"""Plans carried out, prefills, and Rucio kept in step."""
