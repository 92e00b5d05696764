"""STRETCH: windowed operators that share their states and change their degree of parallelism."""
