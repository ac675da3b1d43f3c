"""The look of the page: light, dark and paper, from system fonts only."""

CSS = """
:root { --ground: #fdfdfc; --ink: #1d2126; --soft: #5f6670; --line: #dcdfe3; --wash: #f2f3f5; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #e4e7eb; --soft: #9aa2ac; --line: #333a42; --wash: #20252b; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 0 0 .7rem; }
section { margin-top: 2.8rem; }
p, li { max-width: 52rem; }
.lead { color: var(--soft); margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .26rem .5rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
th:first-child, td.name, .texts th, .texts td { text-align: left; }
thead th { font-weight: 600; white-space: normal; vertical-align: bottom;
  border-bottom: 1.5px solid var(--ink); }
tbody.encoding > tr:first-child > * { border-top: 1px solid var(--line); padding-top: .55rem; }
thead + tbody.encoding > tr:first-child > * { border-top: 0; }
tbody.encoding > tr:last-child > * { padding-bottom: .55rem; }
tbody th { font-weight: 600; vertical-align: top; }
.quiet td, small { color: var(--soft); font-size: .85rem; }
.trained { background: var(--wash); }
td.undefined { text-align: center; color: var(--soft); font-style: italic; }
.dot { display: inline-block; width: .65rem; height: .65rem; border-radius: 50%;
  margin-right: .5rem; print-color-adjust: exact; }
figure { margin: 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 44rem; height: auto; display: block; }
figcaption, .notes { color: var(--soft); font-size: .88rem; max-width: 52rem; margin-top: .6rem; }
.notes p { margin: .25rem 0; }
.two { display: grid; gap: 1.5rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
ul { margin: 0; padding-left: 1.1rem; }
li { margin: .3rem 0; }
details { margin-top: .5rem; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
pre { background: var(--wash); padding: .9rem 1rem; overflow-x: auto; font-size: .8rem;
  line-height: 1.45; }
code { font-size: .9em; overflow-wrap: anywhere; }
@media print {
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  section, figure, tbody { break-inside: avoid; }
  section { margin-top: 1.6rem; }
  figure svg { min-width: 0; }
  table { font-size: 8pt; }
}
"""
