"""Measurements. Every figure is printed by `make figure NAME=…`, measured when called."""
