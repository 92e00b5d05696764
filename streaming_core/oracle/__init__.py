"""The sequential oracle: what an application means, and what a workload comes to on one thread."""
