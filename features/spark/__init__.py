"""Expressions and schemas of Spark, without session, path or clock."""
