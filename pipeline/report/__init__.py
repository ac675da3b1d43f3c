"""From finished run folders to one page that anybody can open; imports no torch."""
