"""The Spark server of a run, and the settings of server and sessions."""
