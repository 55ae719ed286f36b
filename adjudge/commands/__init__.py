"""The commands: `adjudge NAME` is the function, or the group, NAME in NAME.py.

A command of a group stands in the group's file, or in GROUP_NAME.py, where it has one of its own. Its parameters are
what can be typed, and its docstring is its help. `options/` has the options that several commands take, `runs/` what
their runs share; lazy.py has each imported when it is called, so that `adjudge --help` loads none.
"""
