"""The hosts that run cells: what a host is sent, what runs there, and what a common LOCKSTEP_HOME needs."""
