"""Which tokens of a sequence a rank holds: neighbours, ceil(S / P) each, the last ranks fewer."""


def token_slice(length: int, parts: int, part: int) -> slice:
    """The tokens [start, stop) of a sequence of `length` that `part` of `parts` ranks holds.

    Parts tile the sequence: each token is in exactly one. A part can be empty when `length` is
    short.
    """
    size = -(-length // parts)
    return slice(min(part * size, length), min((part + 1) * size, length))
