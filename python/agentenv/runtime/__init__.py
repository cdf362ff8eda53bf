"""One live sandbox from plan to teardown: acquires in order, gives back in reverse, says why one ended."""
