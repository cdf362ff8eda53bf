"""The HTTP door: parses words, calls the orchestrator, answers in the words of the contract. Decides nothing."""
