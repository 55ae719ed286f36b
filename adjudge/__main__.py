"""`python -m adjudge`: the same as the `adjudge` command."""

from adjudge.cli import main

main()
