"""Time, arithmetic and memory of the encodings, beside each other and beside other libraries."""
