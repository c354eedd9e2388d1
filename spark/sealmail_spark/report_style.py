"""How the report looks: on a phone, on a desk, in the dark and on paper."""

from typing import Final

STYLE: Final = """
:root{--ink:#1b1f24;--paper:#fff;--faint:#57606a;--line:#d0d7de;--fault:#b3261e;
--warning:#9a5b00;--notice:#0b5394;--good:#1a7f37}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--faint:#9da7b3;
--line:#30363d;--fault:#ff8a80;--warning:#ffb454;--notice:#79b8ff;--good:#56d364}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.2rem;margin:2rem 0 .5rem}
header p,.unit{color:var(--faint)}
.tiles{display:flex;flex-wrap:wrap;gap:.6rem}
.tile{flex:1 1 7rem;border:1px solid var(--line);border-left:.4rem solid currentColor;
border-radius:.4rem;padding:.5rem .8rem}.tile b{font-size:1.5rem;display:block}
.fault{color:var(--fault)}.warning{color:var(--warning)}.notice{color:var(--notice)}
.good{color:var(--good)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .5rem;border-bottom:1px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums}td.number{white-space:nowrap}
code{overflow-wrap:anywhere;font-size:.8rem}td{overflow-wrap:anywhere}
figure{margin:1rem 0}figcaption{font-weight:600}
figure ul{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;margin:0;padding:0 0 0 10%}
figure li{font-size:.85rem}svg.key{width:1.8em;height:.9em;margin-right:.35em}
svg.patterns{position:absolute;width:0;height:0}
small{color:var(--faint)}
svg{width:100%;height:auto;font:12px system-ui,sans-serif;fill:var(--ink)}
svg .grid{stroke:var(--line)}
.evidence td:first-child{white-space:nowrap}.evidence td:nth-child(2){min-width:12rem}
@media (max-width:40rem){body{padding:.7rem}svg{font-size:20px}
.evidence thead,.users thead{display:none}
.evidence tr,.users tr{display:block;border-bottom:1px solid var(--line);padding:.3rem 0}
.evidence td,.users td{display:block;border:0;padding:.1rem}
.users td[title]:before{content:attr(title) " ";float:left;color:var(--faint)}}
@media print{:root{--ink:#000;--paper:#fff;--faint:#444;--line:#bbb;--fault:#8c1d18;
--warning:#7a4600;--notice:#084a86;--good:#116329}html{font-size:10pt}body{max-width:none;padding:0}
figure>svg{width:85%}figure,tr,.tiles{break-inside:avoid}h2{break-after:avoid}}
"""
