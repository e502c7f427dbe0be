"""The ablation report of a folder of runs: one page, tables, plots. `python -m experiments.report
DIR`.

runs (read) -> arms (what varies) -> headline (paired ratios, acceptance) -> plots (panels of marks)
-> page, tables, files.
"""
