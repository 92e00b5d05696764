"""What LOCKSTEP_HOME keeps: the marts of its history, decisions, backups, and room on the disk."""
