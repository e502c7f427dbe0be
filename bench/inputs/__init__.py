"""What operations are given: random, recorded and scripted windows."""
