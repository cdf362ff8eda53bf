"""Settings, construction, start and stop order, set-up and doctor."""
