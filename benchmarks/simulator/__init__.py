"""A simulation of the service under load, in virtual time, around the real traffic classes."""
