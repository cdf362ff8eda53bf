"""What speaks to an AgentENV server or sandbox from outside; imports no server code."""
