"""TStream (ICDE 2020): transactions on shared state."""
