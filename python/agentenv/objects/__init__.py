"""Durable storage that nodes share: files by digest, and small cells that change by compare-and-set."""
