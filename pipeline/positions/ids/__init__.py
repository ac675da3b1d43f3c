"""How tokens get their position ids; one file each."""
