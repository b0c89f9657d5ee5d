"""Engines: whatever turns a prepared image into text, behind one protocol."""
