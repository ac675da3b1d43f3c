"""The split of a document: a pure function of its content, so equal texts never straddle two."""

import hashlib

SPLITS = ("train", "validation", "test")


def split_of(text: str, validation_fraction: float, test_fraction: float) -> str:
    """The split of `text`, "train", "validation" or "test", from the sha256 of its UTF-8 bytes.

    The fractions (of documents) lie in [0, 1) and add to less than 1. Changing one fraction moves
    only documents into or out of train and validation; the test split depends on its own alone.
    """
    digest = hashlib.sha256(text.encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < test_fraction:
        return "test"
    if place < test_fraction + validation_fraction:
        return "validation"
    return "train"
