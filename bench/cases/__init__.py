"""One file a family of operations; `bench.registry` finds them."""
