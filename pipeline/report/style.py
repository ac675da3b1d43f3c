"""The look of the page: light, dark and paper, from system fonts only."""

CSS = r"""
:root { --ground: #fdfdfc; --ink: #1d2126; --soft: #5f6670; --line: #dcdfe3; --wash: #f2f3f5; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #e4e7eb; --soft: #9aa2ac; --line: #333a42; --wash: #20252b; }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 80rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 0 0 .7rem; }
section { margin-top: 2.8rem; }
p, li { max-width: 52rem; }
.lead { color: var(--soft); margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .26rem .38rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
th:first-child, td.name, .texts th, .texts td { text-align: left; }
thead th { font-weight: 600; white-space: normal; vertical-align: bottom;
  border-bottom: 1.5px solid var(--ink); }
tbody.encoding > tr:first-child > * { border-top: 1px solid var(--line); padding-top: .55rem; }
thead + tbody.encoding > tr:first-child > * { border-top: 0; }
tbody.encoding > tr:last-child > * { padding-bottom: .55rem; }
tbody th { font-weight: 600; vertical-align: top; }
th:first-child { position: sticky; left: 0; background: var(--ground); }
a { color: inherit; }
.quiet td, small { color: var(--soft); font-size: .85rem; }
.trained { background: var(--wash); }
thead th button { all: unset; cursor: pointer; font-weight: 600; }
thead th button::after { content: "\2195"; opacity: .35; margin-left: .2em; font-size: .8em; }
thead th[aria-sort] button::after { opacity: 1; content: "\2191"; }
thead th[aria-sort="descending"] button::after { content: "\2193"; }
button:focus-visible, input:focus-visible, summary:focus-visible {
  outline: 2px solid #0b7fc2; outline-offset: 2px; }
.wrapped td { white-space: normal; min-width: 4.5rem; max-width: 15rem; }
td.undefined { text-align: center; color: var(--soft); font-style: italic; }
.dot { display: inline-block; width: .65rem; height: .65rem; border-radius: 50%;
  margin-right: .5rem; print-color-adjust: exact; }
figure { margin: 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 44rem; height: auto; display: block; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
.points circle { fill: transparent; pointer-events: all; }
.points circle:hover { fill: currentColor; fill-opacity: .18; }
[data-kind="seed"], .by-seed [data-kind="mean"], .by-seed .over-seeds, .seeds-chosen {
  display: none; }
.by-seed [data-kind="seed"] { display: inline; }
.by-seed .seeds-chosen { display: block; font-size: .9rem; font-style: italic; margin: .3rem 0; }
#tip { position: fixed; z-index: 9; pointer-events: none; white-space: pre-wrap;
  max-width: min(34rem, calc(100vw - 1rem)); padding: .35rem .6rem; border-radius: .3rem;
  font-size: .82rem; background: var(--ink); color: var(--ground); }
#filter { position: sticky; top: 0; z-index: 5; background: var(--ground); margin-top: 1.2rem;
  padding: .45rem 0; border-bottom: 1px solid var(--line); }
#filter .choices { max-height: 60vh; overflow-y: auto; padding-top: .3rem; }
fieldset { border: 0; margin: .3rem 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .15rem 1rem; font-size: .9rem; min-width: 0; }
legend { padding: 0; font-weight: 600; }
label { display: inline-flex; align-items: center; gap: .3rem; cursor: pointer; }
label .dot { margin-right: .1rem; }
legend button { font: inherit; font-size: .8rem; font-weight: 400; color: var(--soft);
  background: none; border: 1px solid var(--line); border-radius: .25rem; padding: 0 .45rem;
  cursor: pointer; }
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
@media (max-width: 40rem) {
  main { padding: 1.5rem .9rem 3rem; }
  h1 { font-size: 1.35rem; overflow-wrap: anywhere; }
  section { margin-top: 2rem; }
}
@page { size: landscape; margin: 1cm; }
@media print {
  .scroll, figure, pre { overflow: visible; }
  pre { white-space: pre-wrap; }
  th:first-child { position: static; white-space: normal; }
  th, td { padding: .12rem .25rem; }
  .quiet td, small { font-size: inherit; }
  #filter .choices, legend button, #tip { display: none; }
  #filter { position: static; border: 0; }
  thead th button::after { content: none; }
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  section, figure, tbody { break-inside: avoid; }
  section { margin-top: 1.6rem; }
  figure svg { min-width: 0; }
  table { font-size: 8pt; }
}
"""
