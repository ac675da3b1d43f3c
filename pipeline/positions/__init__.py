"""Position encodings: one file each, one contract (`base.Position`), found by file name (`registry`)."""
