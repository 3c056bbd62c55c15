"""Drills: what runbooks say, rehearsed on a stack of their own and checked."""
