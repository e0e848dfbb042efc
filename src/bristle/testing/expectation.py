"""How a conformance suite complains."""


def expect(holds: object, complaint: str) -> None:
    """Raise an AssertionError with the complaint unless it holds."""
    if not holds:
        raise AssertionError(complaint)
