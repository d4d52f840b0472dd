"""A promise that a bench sees broken."""


class Broken(Exception):
    """A promise does not hold."""


def check(holds: bool, what: str) -> None:
    """Raise Broken, and say `what`, unless it holds."""
    if not holds:
        raise Broken(what)
