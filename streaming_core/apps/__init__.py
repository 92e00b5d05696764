"""The applications, one file each. A new file here is a new application: `registry` finds it."""
