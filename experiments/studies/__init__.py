"""Studies: many small trials in one process pool, one folder, one verdict. `study=null` is an
ordinary run."""
