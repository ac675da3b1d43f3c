"""The page around its sections: style, script, and a policy that allows exactly these two.

A browser that keeps to the policy runs no other script, takes no other style and asks nothing of
any network, whatever words from run folders stand in the page.
"""

import base64
import hashlib
import re
from html import unescape
from importlib.resources import files

from pipeline.report.drawing import COLOURS
from pipeline.report.style import CSS


def whole_page(title: str, body: str) -> str:
    """The page with this title and body, both escaped already."""
    body, own = _classes(body)
    dots = "".join(f".c{n} {{ background: {colour}; }}\n" for n, colour in enumerate(COLOURS))
    style = CSS + dots + own
    script = (files("pipeline.report") / "page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _classes(body: str) -> tuple[str, str]:
    """The body with a class in the place of each style of an element, and the rules of these.

    The policy allows no style of an element; and pictures repeat a few styles thousands of times.
    Only tags are looked at: text may say anything, but holds no bare ``<``.
    """
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return f' class="{names.setdefault(unescape(found[1]), f"k{len(names)}")}"'

    def tag(found: re.Match[str]) -> str:
        return re.sub(r' style="([^"]*)"', named, found[0])

    body = re.sub(r"<[a-z][^<>]*>", tag, body)
    return body, "".join(f".{name} {{ {rule} }}\n" for rule, name in names.items())


def _allowed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
