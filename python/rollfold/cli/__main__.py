"""`python -m rollfold.cli`, the same as the command `rollfold`."""

from rollfold.cli import main

main()
