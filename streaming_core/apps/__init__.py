"""The applications, one file each. A new file here is a new application (see registry.py)."""
