"""Which tokens of a sequence a rank holds.

A sequence group of P ranks is R stations of U = P / R ranks. Station r has the stripe of tokens r,
r + R, r + 2R, ..., so that causal work is even (striped attention, Brandon et al. 2023, arXiv
2311.09431); the ranks of a station share its stripe as neighbours, ceil(n / U) of n tokens each,
the last ranks fewer. With R = 1 the stripe is the sequence.
"""


def stripe(length: int, stations: int, station: int) -> slice:
    """The tokens of a sequence of `length` that one of `stations` has."""
    return slice(station, length, stations)


def token_slice(length: int, parts: int, part: int, stations: int = 1) -> slice:
    """The tokens of a sequence of `length` that `part` of `parts` ranks holds.

    Parts tile the sequence: each token is in exactly one. A part can be empty when `length` is
    short. With more than one station the slice has a step: count with `range(length)[slice]`.
    """
    station, place = divmod(part, parts // stations)
    held = len(range(length)[stripe(length, stations, station)])
    size = -(-held // (parts // stations))
    start, stop = min(place * size, held), min((place + 1) * size, held)
    return slice(station + stations * start, station + stations * stop, stations)
