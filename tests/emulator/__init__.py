"""An emulator of the PTX that Triton emits, in numpy: compiled kernels run on a CPU, with every
access checked.

ptx.py reads the text, memory.py checks bounds, alignment and races, instructions.py (arithmetic.py,
access.py, threads.py) says what an instruction does, machine.py runs programs, driver.py puts it
all under Triton's own launcher. What is not known raises `Unknown`.
"""
