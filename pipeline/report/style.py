"""The look of the page: light, dark and paper, from system fonts only."""

CSS = """
:root { --ground: #fdfdfc; --ink: #1d2126; --soft: #646b74; --line: #dcdfe3; --wash: #f3f4f5; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #e4e7eb; --soft: #99a1ab; --line: #333a42; --wash: #1d2126; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.25; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 0 0 .7rem; }
section { margin-top: 2.8rem; }
p, li { max-width: 46rem; }
.lead { color: var(--soft); margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; width: 100%; }
th, td { padding: .26rem .5rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
th:first-child, td.name, th.name { text-align: left; }
thead th { white-space: normal; vertical-align: bottom; font-weight: 600; border-bottom: 1.5px solid var(--ink); }
tbody.encoding > tr:first-child > * { border-top: 1px solid var(--line); padding-top: .55rem; }
tbody.encoding:first-of-type > tr:first-child > * { border-top: 0; }
tbody.encoding > tr:last-child > * { padding-bottom: .55rem; }
tbody th { font-weight: 600; vertical-align: top; }
.quiet, .quiet td, small { color: var(--soft); font-size: .85rem; }
.trained { background: var(--wash); }
td.undefined { text-align: center; color: var(--soft); font-style: italic; }
.dot { display: inline-block; width: .65rem; height: .65rem; border-radius: 50%; margin-right: .5rem; }
figure { margin: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption, .notes { color: var(--soft); font-size: .88rem; max-width: 46rem; margin-top: .6rem; }
.notes p { margin: .25rem 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.5rem 2.5rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
ul { margin: 0; padding-left: 1.1rem; }
li { margin: .3rem 0; }
details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--soft); }
pre { background: var(--wash); padding: .9rem 1rem; overflow-x: auto; font-size: .8rem; line-height: 1.45; }
code { font-size: .88em; }
@media print {
  :root { --ground: #fff; --ink: #000; --soft: #444; --line: #bbb; --wash: #f2f2f2; }
  main { max-width: none; padding: 0; }
  body { font-size: 10.5pt; }
  section, figure { break-inside: avoid; }
  table { font-size: 8.5pt; }
}
"""
