"""Databases that went back: found by numbers, and declared restored by an operator."""
