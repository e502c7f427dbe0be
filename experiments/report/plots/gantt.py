"""Grants over time, with their gaps."""

from __future__ import annotations

from experiments.report.panel import Bars, Panel, Plot, View, left_out, most, shown

MOST, REQUESTS = 4, 24


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        tables = {
            row.arm.label: row.arm.runs[0].table("grants")
            for row in rows
            if row.arm.runs[0].config.get("grant", "off") != "off"
        }
        known = [
            row for row in rows if (table := tables.get(row.arm.label)) is not None and table.height
        ]
        kept = most(known, MOST)
        for row in kept:
            table = tables[row.arm.label]
            assert table is not None
            marks = []
            requests = sorted(table["request"].unique().to_list())
            names = requests[:REQUESTS]
            for colour, name in enumerate(names):
                own = table.filter(table["request"] == name)
                hover = [
                    f"{name}: rounds {began} to {ended}, {tokens} tokens, waited {waited}"
                    for began, ended, tokens, waited in own.select(
                        "began", "ended", "tokens", "waited"
                    ).iter_rows()
                ]
                length = (own["ended"] - own["began"]).to_list()
                marks.append(
                    Bars(
                        name,
                        [name] * own.height,
                        length,
                        own["began"].to_list(),
                        colour,
                        across=True,
                        hover=hover,
                        legend=False,
                    )
                )
            where = "each run's grants.parquet"
            title = (
                f"{row.arm.label}, seed {row.arm.runs[0].seed}{shown(known, kept, where)}"
                + left_out(
                    f"{len(names)} of {len(requests)} requests", len(requests) - len(names), where
                )
            )
            panels.append(
                Panel(
                    title,
                    "granted rounds",
                    "",
                    marks,
                    [row.arm.runs[0]],
                    wide=True,
                    height=120 + 24 * len(names),
                )
            )
    return panels or "no run has grants (grant=off, or no grants.parquet)"


PLOT = Plot(
    "grants",
    "Grants",
    "A bar is a grant, on the clock of granted rounds; the space between two bars of a request is "
    "its gap.",
    draw,
)
