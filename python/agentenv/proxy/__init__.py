"""The data plane: carries one HTTP exchange, or one upgraded connection, between a client and a guest."""
