"""The hosts that run cells: what a host is sent, what runs there, and what one host or one home excludes."""
