"""A self-contained HTML page: no script, nothing fetched, all text escaped.

The page forbids itself everything but its own style, so that what a model or a tool said can do
nothing in a browser even where an escape were missing.  A table, a bar and a list of messages are
all that pages here are made of; they keep their text size on a narrow screen.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable
from pathlib import Path

_MARK = "<!DOCTYPE html>\n<!-- made by trioagent -->\n"
"""How a page begins, by which a file is known that may be replaced."""

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls, and what would change the direction of the text around it."""

_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --good: #2a8a4a; --bad: #c43;
  --warn: #b07a00; --cool: #3a78c2; --dim: #777; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; }
.row { border-top: 1px solid var(--line); padding: .35rem 0; }
.label { display: flex; flex-wrap: wrap; gap: .1rem .8rem; }
.label b { font-weight: 600; } .label > span { color: var(--dim); font-size: .85rem; }
.track { position: relative; height: .7rem; margin-top: .25rem; background: var(--soft);
  border-radius: 2px; overflow: hidden; }
.track i { position: absolute; top: 0; bottom: 0; min-width: 2px; }
.track svg { display: block; width: 100%; height: 100%; }
@media (min-width: 60rem) {
  .row { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.5rem;
    align-items: center; }
  .track { margin: 0; }
}
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.fill-good { background: var(--good); fill: var(--good); }
.fill-bad { background: var(--bad); fill: var(--bad); }
.fill-warn { background: var(--warn); fill: var(--warn); }
.fill-cool { background: var(--cool); fill: var(--cool); }
.fill-dim { background: var(--line); fill: var(--line); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem; margin: .5rem 0; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem;
  border-radius: 2px; vertical-align: -.1rem; }
article { border-left: 3px solid var(--line); padding: .1rem 0 .1rem .8rem; margin: .8rem 0; }
article header { color: var(--dim); font-size: .85rem; }
pre { font: .9rem/1.45 ui-monospace, monospace; white-space: pre-wrap; margin: .2rem 0; }
"""


def escaped(text: str) -> str:
    """`text` as it is shown: markup is none, and what could not be seen is."""
    return html.escape(_UNSEEN.sub(_named, text).encode("utf-8", "backslashreplace").decode())


def _named(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def document(title: str, body: Iterable[str]) -> str:
    """A whole page; `title` is text, the pieces of `body` are HTML."""
    return (
        f'{_MARK}<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{''.join(body)}</body></html>\n"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names, which are text, and what they are, which is HTML."""
    return f"<dl>{''.join([f'<dt>{escaped(n)}</dt><dd>{v}</dd>' for n, v in pairs])}</dl>\n"


def coloured(text: str, style: str) -> str:
    """A piece of text as ``good``, ``bad``, ``warn`` or, for "", as it is."""
    return f'<span class="{style}">{escaped(text)}</span>' if style else escaped(text)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What the fills mean: pairs of a fill, such as ``good``, and its meaning."""
    items = [f'<span><i class="fill-{fill}"></i>{escaped(text)}</span>' for fill, text in entries]
    return f'<div class="key">{"".join(items)}</div>\n'


def row(name: str, told: Iterable[str], track: str) -> str:
    """A line with a name, what is told of it, as HTML, and a picture at its side."""
    spans = "".join([f"<span>{text}</span>" for text in told])
    return (
        f'<div class="row"><div class="label"><b>{escaped(name)}</b>{spans}</div>'
        f'<div class="track">{track}</div></div>\n'
    )


def bar(start: float, end: float, fill: str) -> str:
    """A part of a track, from `start` to `end` as shares of it."""
    left = min(max(start, 0.0), 1.0) * 100
    width = (min(max(end, 0.0), 1.0) * 100) - left
    place = f"left:min({left:.2f}%,calc(100% - 2px));width:{max(width, 0):.2f}%"
    return f'<i class="fill-{fill}" style="{place}"></i>'


def stack(parts: Iterable[tuple[int, str]], whole: int) -> str:
    """An SVG that fills a track: so many of each fill, one behind the other, of `whole`."""
    x, rects = 0, []
    for count, fill in parts:
        rects.append(f'<rect class="fill-{fill}" x="{x}" y="0" width="{count}" height="1"/>')
        x += count
    size = f'viewBox="0 0 {max(whole, 1)} 1" preserveAspectRatio="none"'
    return f'<svg {size} role="img">{"".join(rects)}</svg>'


def save_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page whole or not at all; only another page of this library is ever replaced.

    Raises:
        FileExistsError: `path` is a file of another kind.
        OSError: it cannot be written.
    """
    place = Path(path)
    if place.exists():
        with place.open("rb") as file:
            if file.read(len(_MARK)) != _MARK.encode():
                raise FileExistsError(f"{place} is there already and is no page of trioagent")
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8") as out:
            out.write(text)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
