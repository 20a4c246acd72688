"""``python -m fedfa``: the command line."""

from fedfa.cli import main

main()
