"""What a simulation raises when the scheduler is wrong."""


class Violation(AssertionError):
    """A law was broken, an answer was wrong, or something that must end did not."""


class Stuck(Violation):
    """Requests do not end although nothing is in their way."""
