"""Telemetry: what is measured, traced and logged; never what a page says."""
