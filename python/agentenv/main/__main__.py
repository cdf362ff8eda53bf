"""`python -m agentenv.main`: the command line without an installed script."""

from agentenv.main.entry import run

run()
