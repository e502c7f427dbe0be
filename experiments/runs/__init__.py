"""One run: validated, set up, carried out on a backend, checked, written down."""
