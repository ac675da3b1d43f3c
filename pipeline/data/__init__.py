"""Text in, token packs out: readers, tokenizer, split, packs, preparation and sequence order."""
