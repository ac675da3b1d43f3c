"""Position encodings: one file each, one contract (`base`), found by file name (`registry`)."""
