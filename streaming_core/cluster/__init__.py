"""An application in tasks that share nothing, between which a cluster engine moves rows. Start with `stages`, then `task`."""
