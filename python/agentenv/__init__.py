"""AgentENV: self-hosted micro-VM sandboxes that speak the E2B API."""

__version__ = "0.1.0"

__all__ = ["__version__"]
