"""Features event by event: a state that each access updates, and rows of numbers made from it.

The state knows files, datasets and *passes*: a task's, or a user's, reading through a dataset. `update` takes
one access in about a tenth of a microsecond, `row` writes the columns of one file as they are now. Both are
kernels of plain arrays, so that a replay, a daemon and a batch compute the same bits.
"""
