"""The data plane: carries one exchange (HTTP, stream or WebSocket) to a port of a guest and back."""
