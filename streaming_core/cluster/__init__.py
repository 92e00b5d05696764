"""An application in tasks that share nothing. A cluster engine moves rows between them. Read `stages`, then `task`."""
