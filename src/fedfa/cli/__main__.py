"""``python -m fedfa.cli``: the command line."""

from fedfa.cli import main

main()
