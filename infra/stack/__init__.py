"""The production topology on one machine: `lockstep stack`."""
