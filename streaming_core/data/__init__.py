"""What passes between the parts: rows and columns, workloads, digests."""
