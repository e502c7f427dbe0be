"""One file a family of operations; `bench.ops.registry` finds them."""
