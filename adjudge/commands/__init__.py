"""The commands: `adjudge NAME` is the function, or the group of commands, NAME in NAME.py.

A command is one function: its parameters are what can be typed, its docstring is its help, its body what it does. Of a
group they stand in its file, or in those whose names begin with its own; the lists in bench.py and train.py say where.
`options/` has the options that several commands take, `runs/` what their runs share; lazy.py imports each command when
it is called.
"""
