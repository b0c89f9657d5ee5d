"""Load tests of any deployment: the curve, its knee, and the settings that follow."""
