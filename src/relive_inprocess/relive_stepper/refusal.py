"""What is asked for and cannot be meant; errors in words."""

_MESSAGE = 400  # characters


class Refused(Exception):
    """What is asked for cannot be meant: what happened, why, and what to do.

    ``is_near``: this process has what is meant, but for a part of it, so it knows more than one that has nothing of it.
    """

    def __init__(self, what, why, remedy, is_near=False):
        Exception.__init__(self, what)
        self.refusal = {"what": what, "why": why, "remedy": remedy, "is_near": is_near}


def message_of(error):
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return ("{}: {}".format(name, text) if text else name)[:_MESSAGE]
