"""Scaling Ordered Stream Processing: pooled workers that keep the order."""
