"""The ablation report of a folder of runs: one page, tables, pictures. `python -m experiments.report DIR`.

runs (read) -> arms (what varies) -> headline (paired ratios, acceptance) -> pictures (panels of marks) -> page, tables, files.
"""
