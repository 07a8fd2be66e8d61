"""The style sheet of the report of an export: light and dark by what the reader's system says, wide and on a phone.

The six colours of series are Okabe and Ito's, which the colour-blind can tell apart.
"""

from __future__ import annotations

STYLE = """
:root{--ground:#f6f7f9;--card:#fff;--text:#1c2430;--quiet:#5d6877;--line:#e3e7ec;--good:#117a4b;--bad:#b3261e;
--s0:#0072b2;--s1:#e69f00;--s2:#009e73;--s3:#cc79a7;--s4:#56b4e9;--s5:#d55e00}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--card:#1b2129;--text:#e6eaf0;--quiet:#98a4b3;--line:#2d3641;
--good:#5fd09a;--bad:#ff8a80;--s0:#4aa8e0;--s1:#f0b441;--s2:#2cc295;--s3:#dd9cc0;--s4:#8fd0f5;--s5:#f08a4b}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1064px;margin:0 auto;padding:24px 16px}
header h1{margin:0;font-size:26px;letter-spacing:-.01em;overflow-wrap:anywhere}
header p{margin:2px 0 18px;color:var(--quiet);overflow-wrap:anywhere}header b{color:var(--text);font-weight:600}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-bottom:12px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}.tile h3{margin:0;font-size:12px;font-weight:600;color:var(--quiet)}
.tile p{margin:2px 0 0;font-size:22px;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.tile small{color:var(--quiet)}.tile.good p{color:var(--good)}.tile.bad p{color:var(--bad)}
.card{padding:16px;margin:12px 0}.card.bad{border-color:var(--bad)}.card ul{margin:8px 0 0;padding-left:20px}
.card li{overflow-wrap:anywhere}
h2{margin:0;font-size:16px}.said{margin:2px 0 10px;color:var(--quiet);font-size:13.5px;max-width:75ch}
.legend{margin:0 0 8px;font-size:13px;display:flex;flex-wrap:wrap;gap:2px 14px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
svg{display:block;max-width:100%;height:auto}
svg text{font-size:12px;fill:var(--quiet);font-variant-numeric:tabular-nums}
.grid{stroke:var(--line);stroke-width:1}.line{fill:none;stroke:var(--s0);stroke-width:1.6;stroke-linejoin:round}
.band{fill:var(--s4);opacity:.75}g:hover>rect{filter:brightness(1.15) saturate(1.2)}
.s0{fill:var(--s0);background:var(--s0)}.s1{fill:var(--s1);background:var(--s1)}.s2{fill:var(--s2);background:var(--s2)}
.s3{fill:var(--s3);background:var(--s3)}.s4{fill:var(--s4);background:var(--s4)}.s5{fill:var(--s5);background:var(--s5)}
.scroll{overflow-x:auto;margin:6px -16px 0;padding:0 16px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:6px 0 6px 20px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{font-size:12px;font-weight:600;color:var(--quiet)}th:first-child,td:first-child{text-align:left;padding-left:0}
tbody tr:last-child td{border-bottom:0}
footer{color:var(--quiet);font-size:13px;margin:18px 2px 0;overflow-wrap:anywhere}
.narrow{display:none}.narrow svg{width:100%}
@media (max-width:640px){main{padding:16px 10px}.wide{display:none}.narrow{display:block}.card{padding:14px 12px}
.tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:10px 12px}.tile:last-child:nth-child(odd){grid-column:span 2}
.tile p{font-size:19px}
.scroll{margin:6px -12px 0;padding:0 12px}}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
"""
